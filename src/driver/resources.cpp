#include "driver/resources.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/prompt.hpp"
#include "base/random.hpp"
#include "comm/messages.hpp"
#include "io/atomic_file.hpp"
#include "io/json_file.hpp"
#include "io/safetensors.hpp"
#include "plan/prompt_sampler.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

// A part of a checkpoint lies in a folder of its own (diffusers' layout) or in the model folder itself.
std::string PartFolder(const std::string& model, const std::string& part) {
  const fs::path folder = fs::path(model) / part;
  return fs::is_directory(folder) ? folder.string() : model;
}

void RequireFolder(const std::string& path) {
  if (fs::is_directory(path)) return;
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

// The scores that every report shows beside the reward that is trained on, where the prompts allow them.
RewardConfig WithReportedTerms(const RewardConfig& config, const ConditionedPrompts& train,
                               const ConditionedPrompts& eval) {
  RewardConfig scored = config;
  for (const ConditionedPrompts* list : {&train, &eval}) {
    for (const Prompt& prompt : list->prompts) {
      if (prompt.include.empty() || !prompt.rewards.empty()) return scored;
    }
  }
  for (const std::string name : {"geneval_strict", "geneval_soft", "geneval_tidy"}) {
    bool listed = false;
    for (const WeightedName& term : scored.terms) listed = listed || term.name == name;
    if (!listed) scored.terms.push_back({name, 0.0});
  }
  return scored;
}

// Hash of the files' bytes, in this order, and of `weights`.
std::string ContentHash(const std::vector<std::string>& paths, std::span<const float> weights) {
  std::uint64_t hash = Checksum(weights);
  for (const std::string& path : paths) hash = StreamKey({hash, PromptId(ReadWholeFile(path))});
  return fmt::format("{:016x}", hash);
}

ConditionedPrompts Condition(const PromptList& file, const TextTable& text) {
  ConditionedPrompts list;
  list.prompts = file.prompts;
  for (const Prompt& prompt : file.prompts) {
    try {
      list.conditions.push_back(text.Embed(prompt.text));
    } catch (const UserError& error) {
      throw UserError(file.path + ":" + std::to_string(prompt.line) + ": " + error.what());
    }
  }
  return list;
}

}  // namespace

TextTable::TextTable(const std::string& folder) : vocabulary_(ReadVocabulary(folder)) {
  const std::string path = folder + "/text_embedding.safetensors";
  const SafetensorsFile file(path);
  const HostTensor table = file.Read("embed_tokens.weight");
  if (table.shape.size() != 2 || table.shape[0] != static_cast<Index>(vocabulary_.words.size())) {
    throw UserError(path + ": embed_tokens.weight is " + ToString(table.shape) + ", but vocabulary.json has " +
                    std::to_string(vocabulary_.words.size()) + " words");
  }
  width_ = table.shape[1];
  table_ = table.data;
}

TextCondition TextTable::Embed(const std::string& text) const {
  TextCondition condition;
  for (const int id : vocabulary_.Tokenize(text)) {
    const auto row = table_.begin() + id * width_;
    condition.embedding.insert(condition.embedding.end(), row, row + width_);
    ++condition.tokens;
  }
  return condition;
}

LoraSettings MakeLoraSettings(const LoraConfig& config) {
  if (config.rank == 0) return {};
  return {config.rank, config.Scale() * config.rank, config.targets};
}

Resources LoadResources(const Config& config) {
  Resources resources;
  RequireFolder(config.model.path);
  const std::string transformer = PartFolder(config.model.path, "transformer");
  resources.layout =
      std::make_shared<const DitLayout>(ReadTransformerConfig(transformer), MakeLoraSettings(config.lora));
  const DitLayout& layout = *resources.layout;
  resources.base_weights.resize(static_cast<std::size_t>(layout.base().size()));
  layout.base().Load(ReadWeights(transformer), transformer, resources.base_weights);
  const std::string scheduler = PartFolder(config.model.path, "scheduler") + "/scheduler_config.json";
  const bool has_scheduler = fs::exists(scheduler);
  if (has_scheduler) resources.scheduler = ReadSchedulerConfig(fs::path(scheduler).parent_path().string());
  const std::string vae = PartFolder(config.model.path, "vae") + "/linear_vae.safetensors";
  resources.vae = std::make_unique<LinearVae>(ReadSafetensors(vae), vae);
  const TransformerConfig& transformer_config = layout.config();
  if (transformer_config.in_channels != 4 * resources.vae->channels() ||
      transformer_config.patch_size * transformer_config.patch_size * transformer_config.out_channels !=
          transformer_config.in_channels) {
    throw UserError(transformer + "/config.json: in_channels " + std::to_string(transformer_config.in_channels) +
                    " must be patch_size^2 * out_channels and 4 x the autoencoder's " +
                    std::to_string(resources.vae->channels()) + " channels (" + vae + ")");
  }

  const std::string encoder = PartFolder(config.model.path, "text_encoder");
  const TextTable text(encoder);
  if (text.width() != transformer_config.joint_attention_dim) {
    throw UserError(config.model.path + ": the text embedding is " + std::to_string(text.width()) +
                    " wide, the transformer expects joint_attention_dim = " +
                    std::to_string(transformer_config.joint_attention_dim));
  }
  resources.train_file = ReadPrompts(config.prompts.train);
  resources.eval_file = ReadPrompts(config.prompts.eval);
  resources.train = Condition(resources.train_file, text);
  resources.eval = Condition(resources.eval_file, text);
  if (config.sampler.guidance > 1) resources.negative = text.Embed(config.sampler.negative_prompt);

  std::string detector_path = config.reward.detector;
  if (detector_path.empty()) detector_path = config.model.path + "/detector.safetensors";
  const bool has_detector = fs::exists(detector_path);
  for (const PromptList* file : {&resources.train_file, &resources.eval_file}) {
    CheckReward(config.reward, file->prompts, file->path, has_detector, detector_path);
  }
  // Throws if the prompts or the tags' weights do not give that many.
  PromptSampler(resources.train.prompts, config.prompts.tag_weights, config.run.seed).Draw(0, config.group.prompts);
  std::optional<ShapeDetector> detector;
  if (has_detector) detector.emplace(ReadSafetensors(detector_path), detector_path);
  const RewardConfig scored =
      has_detector ? WithReportedTerms(config.reward, resources.train, resources.eval) : config.reward;
  resources.reward = std::make_unique<Reward>(scored, std::move(detector));

  std::vector<std::string> parts = {transformer + "/config.json", vae, encoder + "/vocabulary.json",
                                    encoder + "/text_embedding.safetensors"};
  if (has_scheduler) parts.push_back(scheduler);
  resources.contents["model/path"] = ContentHash(parts, resources.base_weights);
  resources.contents["prompts/train"] = resources.train_file.hash;
  resources.contents["prompts/eval"] = resources.eval_file.hash;
  if (has_detector) resources.contents["reward/detector"] = ContentHash({detector_path}, {});
  return resources;
}

}  // namespace spotlight
