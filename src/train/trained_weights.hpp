// What is trained: master weights, gradient, AdamW's moments and a moving average, shared out over the trainers.
//
// Of every range of parameters (an adapter's block; the vectors and the matrices of a part) each of n trainers owns
// ShareOf(size, index, n): it alone sums the gradient there, keeps the optimizer's state and updates (ZeRO stage 2,
// Rajbhandari et al., arXiv 1910.02054). Passes read a working copy in the model's precision, whole on each trainer, or
// (train/shard_weights) gathered part by part when a pass needs it (stage 3). Master weights, gradients, moments and
// sums are fp32. The gradient of a pass is a sum of its own, over the trainers in the order of their index; as soon as
// Backward is done with a part, it is added to those of the passes before. One trainer gives the bits of a run without
// MPI.
//
// All trainers make the same calls in the same order: SetState, State, Update, Weights, EmaWeights, and for each pass
// of one either a pass or SkipPass of the others. PeerLost if one is gone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/trainer_group.hpp"
#include "config/config.hpp"
#include "model/model_weights.hpp"
#include "train/shard_collectives.hpp"

namespace spotlight {

// What a checkpoint of the trainers holds, flat; all arrays have the size of the trained layout.
struct OptimizerState {
  std::vector<float> weights, first_moment, second_moment;
  std::vector<float> ema;  // empty: no average is kept
  std::int64_t updates = 0;
};

class TrainedWeights {
 public:
  // model: its base is what an adapter is trained over.
  TrainedWeights(const Config& config, std::shared_ptr<const DitLayout> layout, const ModelWeights& model,
                 TrainerGroup& group);
  ~TrainedWeights();

  void SetState(const OptimizerState& state);
  // keep: the whole on this trainer; others take part, and get nothing.
  OptimizerState State(bool keep = true) const;
  // A state before the first update.
  static OptimizerState InitialState(const Config& config, std::vector<float> weights);

  // What a pass reads, and adds its gradient to.
  Parameters& parameters();
  void ZeroGradient() { gradient_.Zero(); }
  // For a pass that only others make: adds nothing to the sums that they wait for.
  void SkipPass();
  // Clips the gradient, one AdamW update, the average, and the working copy. Returns the gradient's norm before.
  double Update();

  std::vector<float> Weights(bool keep = true) const;     // whole, fp32
  std::vector<float> EmaWeights(bool keep = true) const;  // whole; empty: no average is kept

 private:
  class PassParameters;
  struct Range {
    Index offset = 0, size = 0;  // in the flat array
    Index own_offset = 0;        // of the own share in this trainer's arrays
  };

  ShareRange Own(const Range& range) const { return ShareOf(range.size, group_.index(), group_.size()); }
  std::span<const Range> RangesOf(int part) const;
  bool alone() const { return group_.size() == 1; }
  // Of kernel memory: between the GPUs, or through the host.
  void SumShard(float* values, Index size);
  template <typename T>
  void GatherShards(T* values, Index size);
  std::vector<float> GatherOnDevice(const Buffer& own, bool keep) const;
  std::vector<float> Gather(const Buffer& own, bool keep) const;
  void TakeShares(const std::vector<float>& whole, Buffer& own) const;
  void RefreshWorkingCopy();

  const TrainConfig config_;
  std::shared_ptr<const DitLayout> layout_;
  const ModelWeights& model_;
  TrainerGroup& group_;
  std::unique_ptr<ShardCollectives> device_;  // null: through the host
  std::vector<Range> ranges_;                 // adapter: one a part; base: vectors and matrices of each part
  Buffer weights_, gradient_, first_moment_, second_moment_, ema_;  // own shares, one after the other
  Buffer working_adapter_;                                          // whole, where there are several trainers
  std::unique_ptr<PassParameters> parameters_;
  std::int64_t updates_ = 0;
};

}  // namespace spotlight
