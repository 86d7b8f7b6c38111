// Everything that a run reads before it starts: model, prompts, reward. Read by every rank from the
// shared file system; each mistake in the files is a UserError.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/scheduler_config.hpp"
#include "base/vocabulary.hpp"
#include "config/config.hpp"
#include "io/prompts.hpp"
#include "model/dit.hpp"
#include "model/linear_vae.hpp"
#include "reward/reward.hpp"
#include "rollout/sampler.hpp"

namespace spotlight {

struct Resources {
  std::shared_ptr<const DitLayout> layout;
  std::vector<float> base_weights;  // [layout->base().size()]
  SchedulerConfig scheduler;
  std::unique_ptr<LinearVae> vae;
  std::unique_ptr<Reward> reward;
  ConditionedPrompts train, eval;
  TextCondition negative;
  PromptList train_file, eval_file;  // where the prompts came from
  // Hash of what was read, by the key that names it: a resumed run must read the same, wherever it lies now.
  std::map<std::string, std::string> contents;
};

Resources LoadResources(const Config& config);

// The adapter that the input asks for.
LoraSettings MakeLoraSettings(const LoraConfig& config);

// A model folder's text encoder: a vocabulary and an embedding table [words, width].
class TextTable {
 public:
  explicit TextTable(const std::string& folder);
  TextCondition Embed(const std::string& text) const;  // UserError for a word that it does not know
  Index width() const { return width_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  Index width_ = 0;
  std::vector<float> table_;
};

}  // namespace spotlight
