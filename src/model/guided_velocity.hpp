// The velocity that rollout and training both use: one pass of the transformer, with both branches of true
// classifier-free guidance in one batch, combined with the per-token norm rescale and differentiated through.
//
// Latents and velocities are whole on every rank of a sequence-parallel group: they are small, and each step's
// arithmetic on them is then that of one rank alone. The transformer's own share is cut out and gathered here.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/tensor.hpp"
#include "kernels/buffer.hpp"
#include "model/dit.hpp"

namespace spotlight {

// A text condition: embedding [tokens, joint_attention_dim].
struct TextCondition {
  Index tokens = 0;
  std::vector<float> embedding;
};

// Noisy latents of B samples.
struct VelocityInput {
  ImageShape image_shape;
  const float* latents = nullptr;  // [B, S, C] kernel memory
  std::vector<float> levels;       // distinct sigmas
  std::vector<int> level_index;    // [B]
  StepReuse reuse;                 // its cache was started with `samples(B)`
};

class GuidedVelocity {
 public:
  // guidance <= 1: the conditional branch alone; the negative text is then not used. activations: as Dit takes them.
  GuidedVelocity(const std::shared_ptr<const DitLayout>& layout, double guidance, TextCondition negative,
                 bool recompute, ElementType activations = ElementType::kFp32);
  void SetNegative(TextCondition negative) { negative_ = std::move(negative); }

  // The texts of the passes that follow, of B samples, and the ranks that run them together (null: this one alone).
  // constant: txt_in and txt_norm do not change between those passes (nor are they trained), so it is done once.
  void SetTexts(Parameters& parameters, const std::vector<const TextCondition*>& conditions, bool constant,
                SequenceGroup* group = nullptr);

  // velocity [B, S, C]. keep: Backward follows.
  void Forward(Parameters& parameters, const VelocityInput& input, bool keep, float* velocity);
  // After a Forward with keep: Backward will be of the samples `kept` only, in ascending order. The caller keeps the
  // same rows of its latents and of dvelocity. SetTexts is needed before the next Forward.
  void KeepSamples(const std::vector<Index>& kept);

  // Adds the parameter gradients of dvelocity [B, S, C]; after a Forward with keep, same parameters.
  void Backward(Parameters& parameters, const float* dvelocity);

  const DitLayout& layout() const { return dit_.layout(); }
  bool guided() const { return guidance_ > 1.0f; }
  // The transformer's, of a batch of `batch`: each guidance branch is one, those of a sample are neighbours.
  Index samples(Index batch) const { return batch * branches(); }

 private:
  Index channels() const;
  Index branches() const { return guided() ? 2 : 1; }

  float guidance_;
  TextCondition negative_;
  bool recompute_;
  Dit dit_;
  DitInput input_;      // of all branches: sample b is 2b, its negative text 2b + 1
  TokenShards shards_;  // of input_
  Buffer text_, projected_text_;
  Buffer image_, velocity_, dvelocity_;  // own shares
  Buffer pairs_, dpairs_;                // [B, branches, S, C]
};

}  // namespace spotlight
