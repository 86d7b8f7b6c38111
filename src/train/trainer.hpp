// GRPO training of one iteration on the reserved ranks: micro-batches of (sample, step) pairs, several
// optimizer updates, gradient clipping, AdamW, moving average.
//
// Trainers t in [g P, (g + 1) P) form group g, which runs its passes together (P = ranks/trainer_sp). Micro-batch j of
// an update belongs to group j mod (number of groups). Sums are in trainer order (train/trained_weights.hpp): a given
// number of groups always gives the same bits of gradients, whatever P, and one group those of one trainer or a run
// without MPI. Not so the gradient's norm: each trainer adds the squares of its own share first, so the last bits of
// the double depend on the number of trainers. The factor that clips is rounded to fp32; where it is seldom (about one
// update in 10^8) another float, an update differs in its last bits.
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
#include "train/trained_weights.hpp"

namespace spotlight {

class Trainer {
 public:
  // sequence_group: of the trainers that run passes together; null: each runs its own.
  Trainer(const Config& config, const std::shared_ptr<const DitLayout>& layout, ModelWeights& weights,
          TrainerGroup& group, SequenceGroup* sequence_group = nullptr);

  // The text that guidance leads away from; needed before Train where there is guidance.
  void SetNegative(const TextCondition& negative);

  // One iteration on samples of the prompts that `conditions` belong to, by prompt index:
  // config.train.updates optimizer updates over the pairs of `samples` whose advantage
  // is not zero. Returns the metrics policy_*, optim_* (src/record/history.hpp lists them).
  std::map<std::string, double> Train(std::uint32_t iteration, const std::vector<TrainSample>& samples,
                                      const std::vector<TextCondition>& conditions);

  TrainedWeights& trained() { return trained_; }

 private:
  struct Pair {
    const TrainSample* sample;
    int step;  // within the window
  };
  struct Sums;

  std::vector<Pair> ShuffledPairs(std::uint32_t iteration, const std::vector<TrainSample>& samples) const;
  void MicroBatch(std::span<const Pair> pairs, double pair_weight, const std::vector<TextCondition>& conditions,
                  Sums& sums);
  void AddOverTrainers(Sums& sums);

  Config config_;
  ModelWeights& model_;
  TrainerGroup& group_;
  SequenceGroup* sequence_group_;
  TrainedWeights trained_;
  GuidedVelocity velocity_, reference_;
  ImageShape image_shape_;
  Index latent_size_;
  Buffer x_, x_next_, v_, v_reference_, dv_;
  Buffer log_prob_, kl_, dlog_prob_, dkl_;  // [pairs]
};

}  // namespace spotlight
