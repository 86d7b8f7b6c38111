#include "driver/resources.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "io/fingerprint.hpp"
#include "io/safetensors.hpp"
#include "io/spot_trace.hpp"
#include "plan/prompt_sampler.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

// The scores that every report shows beside the reward that is trained on, where the prompts allow them.
RewardConfig WithReportedTerms(const RewardConfig& config, const PromptList& train, const PromptList& eval) {
  RewardConfig scored = config;
  for (const PromptList* list : {&train, &eval}) {
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

void LoadTexts(const Config& config, ResourceUse use, Resources& resources) {
  resources.train = ReadPrompts(config.prompts.train);
  resources.eval = ReadPrompts(config.prompts.eval);
  const std::string& embeddings = config.prompts.embeddings;
  if (use == ResourceUse::kPlan && !embeddings.empty() && !fs::exists(embeddings)) {
    resources.notes.push_back(embeddings + ": no embeddings yet; make them with " + EncodeCommand(config));
    return;
  }
  resources.text = OpenTextSource(config);
  const TransformerConfig& transformer = resources.model.layout->config();
  if (resources.text->width() != transformer.joint_attention_dim) {
    throw UserError(fmt::format("{}: the text embedding is {} wide, the transformer expects joint_attention_dim = {}",
                                embeddings.empty() ? config.model.path : embeddings, resources.text->width(),
                                transformer.joint_attention_dim));
  }
  resources.text->Require(resources.train);
  resources.text->Require(resources.eval);
  if (config.sampler.guidance > 1) resources.text->Embed(config.sampler.negative_prompt);
}

void LoadReward(const Config& config, Resources& resources) {
  std::string detector_path = config.reward.detector;
  if (detector_path.empty()) detector_path = config.model.path + "/detector.safetensors";
  const bool has_detector = fs::exists(detector_path);
  for (const PromptList* file : {&resources.train, &resources.eval}) {
    CheckReward(config.reward, file->prompts, file->path, has_detector, detector_path);
  }
  std::optional<ShapeDetector> detector;
  if (has_detector) detector.emplace(ReadSafetensors(detector_path), detector_path);
  const RewardConfig scored =
      has_detector ? WithReportedTerms(config.reward, resources.train, resources.eval) : config.reward;
  resources.reward = std::make_unique<Reward>(scored, std::move(detector));
  if (has_detector) resources.contents["reward/detector"] = Fingerprint({detector_path});
}

// "model/path (inputs/models/tiny), ..."
std::string WithPaths(const std::vector<std::string>& keys, const Config& config) {
  const std::map<std::string, std::string> paths = {
      {"model/path", config.model.path},       {"prompts/train", config.prompts.train},
      {"prompts/eval", config.prompts.eval},   {"prompts/embeddings", config.prompts.embeddings},
      {"model/adapter", config.model.adapter}, {"reward/detector", config.reward.detector},
      {"text_encoder", config.model.path}};
  std::string text;
  for (const std::string& key : keys) text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", key, paths.at(key));
  return text;
}

}  // namespace

void CheckDegrees(const Config& config, const TransformerConfig& transformer) {
  const int heads = transformer.num_attention_heads;
  for (const auto& [key, degree] :
       {std::pair("trainer_sp", config.ranks.trainer_sp), std::pair("explorer_sp", config.ranks.explorer_sp)}) {
    if (heads % degree == 0) continue;
    std::string allowed;
    for (int d = 1; d <= heads; ++d) {
      if (heads % d == 0) allowed += (allowed.empty() ? "" : ", ") + std::to_string(d);
    }
    throw UserError(fmt::format("ranks/{} = {} must divide the {} attention heads of {}: {}", key, degree, heads,
                                config.model.path, allowed));
  }
}

Resources LoadResources(const Config& config, ResourceUse use) {
  Resources resources;
  const LoraSettings lora = MakeLoraSettings(config.lora);
  resources.model = OpenModel(config.model.path, lora, use == ResourceUse::kRun);
  resources.notes = resources.model.notes;
  resources.contents["model/path"] = resources.model.fingerprint;
  CheckDegrees(config, resources.model.layout->config());
  if (!config.model.adapter.empty()) {
    const LoraFile file = ReadLora(config.model.adapter);
    resources.adapter = AdapterValues(*resources.model.layout, file);
    resources.notes.insert(resources.notes.end(), file.notes.begin(), file.notes.end());
    resources.contents["model/adapter"] = Fingerprint({file.path});
  }
  LoadTexts(config, use, resources);
  resources.contents["prompts/train"] = resources.train.hash;
  resources.contents["prompts/eval"] = resources.eval.hash;
  if (resources.text != nullptr) {
    const std::string key = config.prompts.embeddings.empty() ? "text_encoder" : "prompts/embeddings";
    resources.contents[key] = Fingerprint(resources.text->files());
  }
  LoadReward(config, resources);
  if (!config.spot.trace.empty()) resources.trace = ReadSpotTrace(config.spot.trace);
  // Throws if the prompts or the tags' weights do not give that many.
  PromptSampler(resources.train.prompts, config.prompts.tag_weights, config.run.seed).Draw(0, config.group.prompts);
  return resources;
}

void RequireSameContents(const std::map<std::string, std::string>& contents, const Resources& resources,
                         const Config& config) {
  std::vector<std::string> changed = DifferentContents(contents, resources.contents);
  std::erase_if(changed, [&](const std::string& key) { return !contents.contains(key); });
  if (changed.empty()) return;
  throw UserError(
      "what is resumed, replayed or studied must read the same files, but the contents have changed since: " +
      WithPaths(changed, config) + ". Restore them, or start a new run in another directory");
}

std::vector<std::string> DifferentContents(const std::map<std::string, std::string>& a,
                                           const std::map<std::string, std::string>& b) {
  std::vector<std::string> keys;
  const auto add_missing = [&keys](const auto& from, const auto& in, bool differing) {
    for (const auto& [key, hash] : from) {
      const auto found = in.find(key);
      if (found == in.end() || (differing && found->second != hash)) keys.push_back(key);
    }
  };
  add_missing(a, b, true);
  add_missing(b, a, false);
  return keys;
}

void RequireContentsOfRun(const std::map<std::string, std::string>& contents, const Resources& resources,
                          const Config& config) {
  const std::vector<std::string> different = DifferentContents(contents, resources.contents);
  if (different.empty()) return;
  throw UserError("--join: the files on this machine are not those of the run: " + WithPaths(different, config) +
                  ". Copy the run's to these places, or join from a folder that has them");
}

ConditionedPrompts Condition(const PromptList& prompts, const TextSource& text) {
  ConditionedPrompts list{prompts.prompts, {}};
  for (const Prompt& prompt : prompts.prompts) list.conditions.push_back(text.Embed(prompt.text));
  return list;
}

ConditionedPrompts WithoutConditions(const PromptList& prompts) {
  return {prompts.prompts, std::vector<TextCondition>(prompts.prompts.size())};
}

}  // namespace spotlight
