#include "io/lora_file.hpp"

#include <nlohmann/json.hpp>

#include "io/atomic_file.hpp"
#include "io/safetensors.hpp"

namespace spotlight {
namespace {

WeightMap WithPrefix(const WeightMap& weights, const std::string& prefix) {
  WeightMap renamed;
  for (const auto& [name, tensor] : weights) renamed[prefix + name] = tensor;
  return renamed;
}

// A model folder's name may be of any bytes.
std::string ToText(const nlohmann::json& value, int indent = -1) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void WriteLoraFiles(const std::string& folder, const WeightMap& adapter, int rank,
                    const std::vector<std::string>& targets, const std::string& base_model) {
  // diffusers refuses metadata fields that PEFT's LoraConfig does not know, and needs target_modules.
  const nlohmann::json metadata = {
      {"transformer.r", rank}, {"transformer.lora_alpha", rank}, {"transformer.target_modules", targets}};
  WriteSafetensors(folder + "/pytorch_lora_weights.safetensors", WithPrefix(adapter, "transformer."),
                   {{"format", "pt"}, {"lora_adapter_metadata", ToText(metadata)}});
  WriteSafetensors(folder + "/adapter_model.safetensors", WithPrefix(adapter, "base_model.model."), {{"format", "pt"}});
  const nlohmann::json config = {{"peft_type", "LORA"},
                                 {"base_model_name_or_path", base_model},
                                 {"r", rank},
                                 {"lora_alpha", rank},
                                 {"lora_dropout", 0.0},
                                 {"bias", "none"},
                                 {"inference_mode", true},
                                 {"target_modules", targets}};
  WriteFileAtomically(folder + "/adapter_config.json", ToText(config, 2) + "\n");
}

}  // namespace spotlight
