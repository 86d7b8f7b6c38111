#include "driver/model_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "io/fingerprint.hpp"
#include "io/json_file.hpp"
#include "io/safetensors.hpp"
#include "io/weight_files.hpp"
#include "model/linear_vae.hpp"
#include "model/qwen_vae.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

bool HasWeights(const std::string& folder) {
  if (!fs::is_directory(folder)) return false;
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const auto& entry) { return entry.path().extension() == ".safetensors"; });
}

// The decoder, if the folder has its weights, and the files that it was read from.
std::unique_ptr<ImageDecoder> OpenDecoder(const std::string& folder, std::vector<std::string>& read) {
  const std::string linear = folder + "/linear_vae.safetensors";
  if (fs::exists(linear)) {
    read.push_back(linear);
    return std::make_unique<LinearVae>(ReadSafetensors(linear), linear);
  }
  const VaeConfig config = ReadVaeConfig(folder);
  read.push_back(folder + "/config.json");
  if (!HasWeights(folder)) return nullptr;
  const WeightFiles weights(folder);
  for (const SafetensorsFile& file : weights.files()) read.push_back(file.path());
  return std::make_unique<QwenVae>(config, weights);
}

}  // namespace

std::string ModelPart(const std::string& model, const std::string& part) {
  const fs::path folder = fs::path(model) / part;
  return fs::is_directory(folder) ? folder.string() : model;
}

void RequireModelFolder(const std::string& path) {
  if (fs::is_directory(path)) return CheckModelIndex(path);
  std::vector<std::string> names;
  const fs::path parent = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  if (fs::is_directory(parent)) {
    for (const auto& entry : fs::directory_iterator(parent)) names.push_back(entry.path().filename().string());
  }
  const std::string nearest = NearestName(fs::path(path).filename().string(), names);
  throw UserError("model/path = " + path + ": no such folder" +
                  (nearest.empty() ? "" : "; did you mean " + (parent / nearest).string() + "?") +
                  (nearest.empty() ? ". " : " ") + "It must hold config.json and the weights as diffusers saves them");
}

LoraSettings MakeLoraSettings(const LoraConfig& config) {
  if (config.rank == 0) return {};
  return {config.rank, config.Scale() * config.rank, config.targets};
}

Precision MakePrecision(const ModelConfig& config) {
  return config.precision == ModelConfig::Precision::kBf16 ? Precision::kBf16 : Precision::kFp32;
}

ModelFiles OpenModel(const std::string& path, const LoraSettings& lora, bool weights_needed) {
  RequireModelFolder(path);
  ModelFiles model;
  const std::string transformer = ModelPart(path, "transformer");
  std::vector<std::string> read{transformer + "/config.json"};
  const TransformerConfig config = ReadTransformerConfig(transformer);
  model.layout = std::make_shared<const DitLayout>(config, lora);
  if (weights_needed || HasWeights(transformer)) {
    auto weights = std::make_shared<WeightFiles>(transformer);
    model.layout->base().Check(*weights);
    for (const SafetensorsFile& file : weights->files()) read.push_back(file.path());
    model.weights = std::move(weights);
  } else {
    model.notes.push_back(transformer + ": no weights here; a run needs the published ones beside config.json");
  }
  const std::string scheduler = ModelPart(path, "scheduler") + "/scheduler_config.json";
  if (fs::exists(scheduler)) {
    model.scheduler = ReadSchedulerConfig(scheduler);
    read.push_back(scheduler);
  }
  const std::string vae = ModelPart(path, "vae");
  if (vae == path && transformer != path) {
    throw UserError(path + ": no folder vae/, the autoencoder; copy the published one here");
  }
  model.decoder = OpenDecoder(vae, read);
  if (model.decoder == nullptr) {
    if (weights_needed) throw UserError(vae + ": no weights of the autoencoder; copy the published ones here");
    model.notes.push_back(vae + ": no weights of the autoencoder here");
  }
  const int token = config.patch_size * config.patch_size * config.out_channels;
  const Index channels = model.decoder == nullptr ? config.out_channels : model.decoder->channels();
  if (config.in_channels != token || config.in_channels != 4 * channels) {
    throw UserError(
        fmt::format("{}/config.json: in_channels {} must be patch_size^2 * out_channels = {} and 4 x the "
                    "autoencoder's {} channels ({})",
                    transformer, config.in_channels, token, channels, vae));
  }
  model.fingerprint = Fingerprint(read);
  return model;
}

std::vector<float> AdapterValues(const DitLayout& layout, const LoraFile& file) {
  if (file.rank != layout.lora().rank) {
    throw UserError(fmt::format("{}: the adapter has rank {}, but lora/rank = {}; set lora/rank={}", file.path,
                                file.rank, layout.lora().rank, file.rank));
  }
  std::set<std::string> wanted, found;
  for (const Parameter& parameter : layout.adapter().parameters()) wanted.insert(parameter.name);
  for (const auto& [name, tensor] : file.tensors) found.insert(name);
  if (wanted != found) {
    std::vector<std::string> missing, extra;
    std::set_difference(wanted.begin(), wanted.end(), found.begin(), found.end(), std::back_inserter(missing));
    std::set_difference(found.begin(), found.end(), wanted.begin(), wanted.end(), std::back_inserter(extra));
    const std::string example =
        missing.empty() ? extra.front() + " is only in the file" : missing.front() + " is not in the file";
    throw UserError(
        fmt::format("{}: it adapts other layers than the input ({} tensors of {} differ, {}); set "
                    "lora/targets={}, and use a base of as many blocks",
                    file.path, missing.size() + extra.size(), wanted.size(), example, fmt::join(file.targets, ",")));
  }
  std::vector<float> values(static_cast<std::size_t>(layout.adapter().size()));
  layout.adapter().Load(WeightMapSource(file.tensors, file.path), values);
  // The file's B has the scale in it; here alpha / r is applied in the pass.
  const float scale = static_cast<float>(layout.lora().rank / layout.lora().alpha);
  for (const Parameter& parameter : layout.adapter().parameters()) {
    if (!parameter.name.ends_with(".lora_B.weight")) continue;
    const auto first = values.begin() + parameter.offset;
    std::for_each(first, first + parameter.size, [&](float& value) { value *= scale; });
  }
  return values;
}

}  // namespace spotlight
