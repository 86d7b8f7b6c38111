// ReadLora of lora_file.hpp.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "io/json_reading.hpp"
#include "io/lora_file.hpp"
#include "io/peft_config.hpp"
#include "io/safetensors.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDiffusersName = "pytorch_lora_weights.safetensors";
constexpr const char* kPeftName = "adapter_model.safetensors";
constexpr const char* kPeftConfigName = "adapter_config.json";
constexpr const char* kPeftPrefix = "base_model.model.";
constexpr const char* kMetadataKey = "lora_adapter_metadata";

// The linear layers of a block that can be adapted.
constexpr std::array<const char*, 12> kLayers = {"attn.to_q",       "attn.to_k",          "attn.to_v",
                                                 "attn.to_out.0",   "attn.add_q_proj",    "attn.add_k_proj",
                                                 "attn.add_v_proj", "attn.to_add_out",    "img_mlp.net.0.proj",
                                                 "img_mlp.net.2",   "txt_mlp.net.0.proj", "txt_mlp.net.2"};

// Names of tensors that belong to other kinds of adapter, wherever they stand in a name.
constexpr std::pair<const char*, const char*> kForeign[] = {
    {"lora_magnitude_vector", "DoRA"},
    {"dora_scale", "DoRA"},
    {"lokr_", "LoKr"},
    {"hada_", "LoHa"},
    {"lora_A.bias", "a bias in A"},
    {"lora_B.bias", "a bias in B (lora_bias)"},
    {"base_layer.", "whole weights"},
    {"lora_unet_", "names with flattened dots; let diffusers load and save it"},
};

// Names of the tensors of one module; empty: absent.
struct Factors {
  std::string a, b, alpha;
};
using Modules = std::map<std::string, Factors>;

std::string WeightsPath(const std::string& path) {
  if (!fs::is_directory(path)) {
    if (fs::exists(path) && !path.ends_with(".safetensors")) {
      throw UserError(path + ": an adapter is a .safetensors file, or a folder with one");
    }
    return path;
  }
  for (const char* name : {kDiffusersName, kPeftName}) {
    if (fs::exists(fs::path(path) / name)) return (fs::path(path) / name).string();
  }
  throw UserError(
      fmt::format("{}: no adapter: neither {} (diffusers) nor {} (PEFT) is there", path, kDiffusersName, kPeftName));
}

// "transformer_blocks.7.img_mod.1" -> "transformer_blocks.N.img_mod.1": one name for all blocks.
std::string Kind(const std::string& module) {
  const std::string blocks = "transformer_blocks.";
  constexpr std::size_t kMaxDigits = 4;
  if (!module.starts_with(blocks)) return module;
  const std::size_t end = module.find_first_not_of("0123456789", blocks.size());
  const bool numbered = end != std::string::npos && end > blocks.size() && end <= blocks.size() + kMaxDigits;
  return numbered ? blocks + "N" + module.substr(end) : module;
}

std::string KindOf(const char* layer) { return std::string("transformer_blocks.N.") + layer; }

// "transformer.<module>.lora_A.weight" -> <module> and the place of the tensor in its Factors; null: no such tensor.
std::pair<std::string, std::string Factors::*> ParseName(std::string name) {
  for (const std::string prefix : {kPeftPrefix, "transformer.", "diffusion_model."}) {
    if (!name.starts_with(prefix)) continue;
    name.erase(0, prefix.size());
    break;
  }
  const std::string alpha = ".alpha", weight = ".weight";
  if (name.ends_with(alpha)) return {name.substr(0, name.size() - alpha.size()), &Factors::alpha};
  const std::size_t factor = name.rfind(".lora_");
  if (factor == std::string::npos || !name.ends_with(weight)) return {};
  // What stands between factor and ".weight" is the adapter's name in a PEFT model.
  const std::string kind = name.substr(factor + 1, name.find('.', factor + 1) - factor - 1);
  const std::string module = name.substr(0, factor);
  if (kind == "lora_A" || kind == "lora_down") return {module, &Factors::a};
  if (kind == "lora_B" || kind == "lora_up") return {module, &Factors::b};
  return {};
}

Modules SortByModule(const SafetensorsFile& file) {
  Modules modules;
  for (const std::string& name : file.names()) {
    for (const auto& [part, what] : kForeign) {
      if (name.find(part) == std::string::npos) continue;
      throw UserError(fmt::format("{}: tensor {} means {}; plain LoRA is supported", file.path(), name, what));
    }
    const auto [module, factor] = ParseName(name);
    if (factor == nullptr) {
      throw UserError(
          fmt::format("{}: tensor {} is not a part of a LoRA adapter (lora_A, lora_B or alpha)", file.path(), name));
    }
    std::string& slot = modules[module].*factor;
    if (!slot.empty()) {
      throw UserError(fmt::format("{}: holds two adapters of {} ({} and {}); save one of them by itself", file.path(),
                                  module, slot, name));
    }
    slot = name;
  }
  if (modules.empty()) throw UserError(file.path() + ": no adapter: the file has no tensors");
  return modules;
}

void CheckModules(const Modules& modules, const std::string& path) {
  std::set<std::string> known, foreign;
  for (const char* layer : kLayers) known.insert(KindOf(layer));
  for (const auto& [module, factors] : modules) {
    if (!known.contains(Kind(module))) foreign.insert(Kind(module));
  }
  if (foreign.empty()) return;
  throw UserError(fmt::format("{}: adapts {}, which cannot be adapted here; in each block {} can", path,
                              fmt::join(foreign, ", "), fmt::join(kLayers, ", ")));
}

// What PEFT's fields say about the file, if they are there.
std::optional<PeftConfig> ReadPeftConfig(const SafetensorsFile& file) {
  if (file.names().front().starts_with(kPeftPrefix)) {
    const fs::path config = fs::path(file.path()).parent_path() / kPeftConfigName;
    if (!fs::exists(config)) {
      throw UserError(
          fmt::format("{}: {} is missing beside it; PEFT keeps lora_alpha there, without which the scale "
                      "is unknown",
                      file.path(), kPeftConfigName));
    }
    return ParsePeftConfig(ReadJsonFile(config.string()), config.string());
  }
  const auto metadata = file.metadata().find(kMetadataKey);
  if (metadata == file.metadata().end()) return std::nullopt;
  const std::string place = file.path() + ": " + kMetadataKey;
  const json prefixed = json::parse(metadata->second, nullptr, false);
  if (!prefixed.is_object()) throw UserError(place + " is " + Brief(metadata->second) + "; a JSON object is meant");
  // A pipeline writes "transformer.r", a model "r".
  const std::string prefix = "transformer.";
  json fields = json::object();
  for (const auto& [key, value] : prefixed.items()) {
    fields[key.starts_with(prefix) ? key.substr(prefix.size()) : key] = value;
  }
  return ParsePeftConfig(fields, place);
}

HostTensor ReadFinite(const SafetensorsFile& file, const std::string& name) {
  HostTensor tensor = file.Read(name);
  const auto bad = std::find_if(tensor.data.begin(), tensor.data.end(), [](float x) { return !std::isfinite(x); });
  if (bad != tensor.data.end()) {
    throw UserError(fmt::format("{}: tensor {} is not finite: element {} of {} is {}", file.path(), name,
                                bad - tensor.data.begin(), tensor.data.size(), *bad));
  }
  return tensor;
}

// r of the module, after its tensors' shapes.
int CheckedRank(const SafetensorsFile& file, const std::string& module, const Factors& factors) {
  if (factors.a.empty() || factors.b.empty()) {
    throw UserError(fmt::format("{}: {} has no lora_{}; an adapter needs A and B", file.path(), module,
                                factors.a.empty() ? "A" : "B"));
  }
  const Shape& a = file.Info(factors.a).shape;
  const Shape& b = file.Info(factors.b).shape;
  if (a.size() > 2 || b.size() > 2) {
    throw UserError(fmt::format("{}: {} has A {} and B {}, the shapes of a convolution; linear layers can be adapted",
                                file.path(), module, ToString(a), ToString(b)));
  }
  constexpr Index kMaxRank = 65536;
  if (a.size() != 2 || b.size() != 2 || a[0] != b[1] || a[0] < 1 || a[0] > kMaxRank || a[1] < 1 || b[0] < 1) {
    throw UserError(fmt::format("{}: {} has A {} and B {}; [r, in] and [out, r] are meant", file.path(), module,
                                ToString(a), ToString(b)));
  }
  return static_cast<int>(a[0]);
}

// What B is multiplied by; 1 if neither the metadata nor the file says.
double Scale(const SafetensorsFile& file, const std::optional<PeftConfig>& config, const std::string& module,
             const Factors& factors, int rank) {
  double alpha = rank;
  std::string place;
  if (config.has_value()) {
    if (!factors.alpha.empty()) {
      throw UserError(fmt::format("{}: has tensor {} and {}; one of them may say the scale", file.path(), factors.alpha,
                                  config->place));
    }
    if (config->RankOf(module) != rank) {
      throw UserError(fmt::format("{}: r is {} for {}, but its tensors have rank {}", config->place,
                                  config->RankOf(module), module, rank));
    }
    alpha = config->AlphaOf(module);
    place = config->place;
  } else if (!factors.alpha.empty()) {
    const HostTensor tensor = file.Read(factors.alpha);
    if (tensor.data.size() != 1) {
      throw UserError(fmt::format("{}: tensor {} has shape {}; one number is meant", file.path(), factors.alpha,
                                  ToString(tensor.shape)));
    }
    alpha = tensor.data[0];
    place = file.path();
  }
  if (!std::isfinite(alpha)) throw UserError(fmt::format("{}: alpha of {} is {}", place, module, alpha));
  return alpha / rank;
}

}  // namespace

LoraFile ReadLora(const std::string& path) {
  const SafetensorsFile file(WeightsPath(path));
  const Modules modules = SortByModule(file);
  const std::optional<PeftConfig> config = ReadPeftConfig(file);
  CheckModules(modules, file.path());

  LoraFile lora;
  lora.path = file.path();
  std::set<std::string> kinds;
  std::size_t unscaled = 0;
  for (const auto& [module, factors] : modules) {
    const int rank = CheckedRank(file, module, factors);
    if (lora.modules.empty()) lora.rank = rank;
    if (rank != lora.rank) {
      throw UserError(fmt::format("{}: {} has rank {} and {} rank {}; one rank for all layers is supported",
                                  file.path(), lora.modules.front(), lora.rank, module, rank));
    }
    const double scale = Scale(file, config, module, factors, rank);
    if (!config.has_value() && factors.alpha.empty()) ++unscaled;
    HostTensor b = ReadFinite(file, factors.b);
    for (float& value : b.data) value *= static_cast<float>(scale);
    lora.tensors[module + ".lora_A.weight"] = ReadFinite(file, factors.a);
    lora.tensors[module + ".lora_B.weight"] = std::move(b);
    lora.modules.push_back(module);
    kinds.insert(Kind(module));
  }
  for (const std::string layer : kLayers) {
    const std::string attention = "attn.";
    if (!kinds.contains(KindOf(layer.c_str()))) continue;
    lora.targets.push_back(layer.starts_with(attention) ? layer.substr(attention.size()) : layer);
  }
  if (unscaled > 0) {
    lora.notes.push_back(
        fmt::format("{}: says nothing about the scale of {} of {} layers; alpha = r is taken, as "
                    "diffusers does",
                    file.path(), unscaled, modules.size()));
  }
  return lora;
}

}  // namespace spotlight
