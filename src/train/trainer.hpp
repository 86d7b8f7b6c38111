// GRPO training of one iteration on the reserved ranks: micro-batches of (sample, step) pairs, several
// optimizer updates, gradient clipping, AdamW, moving average.
//
// All trainers hold the same weights and optimizer state. Micro-batch j of an update belongs to
// trainer j mod (number of trainers); gradients are summed in trainer order, so a given number of
// trainers always gives the same bits, and one trainer gives those of a run without MPI.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/messages.hpp"
#include "comm/trainer_group.hpp"
#include "config/config.hpp"
#include "model/guided_velocity.hpp"
#include "model/model_weights.hpp"

namespace spotlight {

// What a checkpoint of the trainer holds; all arrays have the size of the trained layout.
struct OptimizerState {
  std::vector<float> weights, first_moment, second_moment;
  std::vector<float> ema;  // empty: no average is kept
  std::int64_t updates = 0;
};

class Trainer {
 public:
  Trainer(const Config& config, const std::shared_ptr<const DitLayout>& layout, const ModelWeights& weights,
          const TextCondition& negative, TrainerGroup& group);

  void SetState(const OptimizerState& state);
  OptimizerState State() const;
  // A state before the first update.
  static OptimizerState InitialState(const Config& config, std::vector<float> weights);

  // One iteration on samples of the prompts that `conditions` belong to, by prompt index:
  // config.train.updates optimizer updates over the pairs of `samples` whose advantage
  // is not zero. Returns the metrics policy_*, optim_* (src/driver/history.hpp lists them).
  std::map<std::string, double> Train(std::uint32_t iteration, const std::vector<TrainSample>& samples,
                                      const std::vector<TextCondition>& conditions);

  std::vector<float> Weights() const;
  std::vector<float> EmaWeights() const;  // empty: no average is kept

 private:
  struct Pair {
    const TrainSample* sample;
    int step;  // within the window
  };
  struct Sums;

  std::vector<Pair> ShuffledPairs(std::uint32_t iteration, const std::vector<TrainSample>& samples) const;
  // Texts of different length never share a pass, as in the rollout: padding would change a sample's bits.
  static std::vector<std::vector<Pair>> ByTextLength(std::span<const Pair> pairs,
                                                     const std::vector<TextCondition>& conditions);
  void MicroBatch(const std::vector<Pair>& pairs, double pair_weight, const std::vector<TextCondition>& conditions,
                  Sums& sums);
  double ApplyUpdate();

  Config config_;
  const ModelWeights& model_;
  TrainerGroup& group_;
  GuidedVelocity velocity_, reference_;
  ImageShape image_shape_;
  Index latent_size_;
  Buffer weights_, gradient_, first_moment_, second_moment_, ema_;
  std::int64_t updates_ = 0;
  Buffer x_, x_next_, v_, v_reference_, dv_;
};

}  // namespace spotlight
