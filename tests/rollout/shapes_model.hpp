// The shipped tiny model with its held-out prompts, as a fixture, and a border that stops a batch.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "io/json_file.hpp"
#include "io/prompts.hpp"
#include "io/safetensors.hpp"
#include "model/linear_vae.hpp"
#include "model/model_weights.hpp"
#include "reward/reward.hpp"
#include "rollout/sampler.hpp"

namespace spotlight {

inline const std::string kShapesModel = SPOTLIGHT_INPUT_DIR "/models/tiny-shapes";

class ShapesModel : public testing::Test {
 protected:
  ShapesModel() {
    layout_ = std::make_shared<const DitLayout>(ReadTransformerConfig(kShapesModel), LoraSettings{});
    weights_.resize(static_cast<std::size_t>(layout_->base().size()));
    layout_->base().Load(*source_, weights_);
    base_.Resize(static_cast<Index>(weights_.size()));
    base_.CopyFromHost(weights_);
    table_ = ReadSafetensors(kShapesModel + "/text_embedding.safetensors").at("embed_tokens.weight");
    const std::string detector = kShapesModel + "/detector.safetensors";
    RewardConfig config;
    config.terms = {{"geneval_strict", 1}, {"geneval_soft", 1}, {"geneval_dense", 1}};
    reward_ = std::make_unique<Reward>(config, ShapeDetector(ReadSafetensors(detector), detector));
    prompts_.prompts = ReadPrompts(SPOTLIGHT_INPUT_DIR "/prompts/shapes_eval.jsonl").prompts;
    const Vocabulary vocabulary = ReadVocabulary(kShapesModel);
    for (const Prompt& prompt : prompts_.prompts)
      prompts_.conditions.push_back(Embed(vocabulary.Tokenize(prompt.text)));
  }

  TextCondition Embed(const std::vector<int>& ids) const {
    TextCondition condition{static_cast<Index>(ids.size()), {}};
    for (const int id : ids) {
      const auto row = table_.data.begin() + id * table_.shape[1];
      condition.embedding.insert(condition.embedding.end(), row, row + table_.shape[1]);
    }
    return condition;
  }

  std::shared_ptr<const TensorSource> source_ =
      std::make_shared<WeightMapSource>(ReadWeights(kShapesModel), kShapesModel);
  std::shared_ptr<const DitLayout> layout_;
  std::vector<float> weights_;
  Buffer base_;
  HostTensor table_;
  std::unique_ptr<Reward> reward_;
  ConditionedPrompts prompts_;
  LinearVae vae_{ReadSafetensors(kShapesModel + "/linear_vae.safetensors"), kShapesModel};
};

// Stops the batch at a border, as a preemption does, with what was committed there.
class StopAt : public StepBorder {
 public:
  explicit StopAt(int steps) : steps_(steps) {}
  void At(int steps, BatchStates* states) override {
    if (steps != steps_) return;
    states->Start();
    committed = states->Take();
    throw PeerStopped{};
  }
  struct PeerStopped {};
  std::vector<DenoiseState> committed;

 private:
  int steps_;
};

}  // namespace spotlight
