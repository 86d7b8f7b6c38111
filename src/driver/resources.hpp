// Everything that a run reads before it starts: model, prompts, reward. Read by every rank from the
// shared file system; each mistake in the files is a UserError.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/spot_trace.hpp"
#include "config/config.hpp"
#include "driver/model_files.hpp"
#include "driver/text_source.hpp"
#include "io/prompts.hpp"
#include "reward/reward.hpp"
#include "rollout/sampler.hpp"

namespace spotlight {

struct Resources {
  ModelFiles model;
  std::unique_ptr<Reward> reward;
  PromptList train, eval;
  std::unique_ptr<TextSource> text;  // of all prompts; null in a plan whose conditions are still to be made
  std::vector<float> adapter;        // of model/adapter; empty: none
  std::optional<SpotTrace> trace;    // of spot/trace
  // Hash of what was read, by the key that names it: a resumed run must read the same, wherever it lies now.
  std::map<std::string, std::string> contents;
  std::vector<std::string> notes;  // what is missing in a plan, and what the user should know
};

// A plan (--check, --dry-run) may lack weights and embeddings, a run not. UserError.
enum class ResourceUse { kRun, kPlan };
Resources LoadResources(const Config& config, ResourceUse use = ResourceUse::kRun);

// UserError unless the sequence-parallel degrees of the input divide the model's heads.
void CheckDegrees(const Config& config, const TransformerConfig& transformer);

// Paths may change on resume, in a replay and in a study, what is read through them may not: UserError unless
// `contents` (Resources::contents of before) are those of `resources`.
void RequireSameContents(const std::map<std::string, std::string>& contents, const Resources& resources,
                         const Config& config);

// The keys of which the one has another hash than the other, or none.
std::vector<std::string> DifferentContents(const std::map<std::string, std::string>& a,
                                           const std::map<std::string, std::string>& b);
// The same for a rank that joins a run, whose files must be these: UserError.
void RequireContentsOfRun(const std::map<std::string, std::string>& contents, const Resources& resources,
                          const Config& config);

// The prompts with all their conditions.
ConditionedPrompts Condition(const PromptList& prompts, const TextSource& text);
// The same without, to be filled in as they are needed.
ConditionedPrompts WithoutConditions(const PromptList& prompts);

}  // namespace spotlight
