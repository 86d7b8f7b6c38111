// The velocity that rollout and training both use: one pass of the transformer, or two combined by
// true classifier-free guidance with the per-token norm rescale, differentiated through.
#pragma once

#include <memory>
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

// Noisy latents of B samples with text conditions of one length.
struct VelocityInput {
  Index batch = 0;
  ImageShape image_shape;
  const float* latents = nullptr;                // [B, S, C] kernel memory
  std::vector<const TextCondition*> conditions;  // [B], all of one length
  std::vector<float> levels;                     // distinct sigmas
  std::vector<int> level_index;                  // [B]
};

class GuidedVelocity {
 public:
  // guidance <= 1: the conditional pass alone; `negative` is then not used.
  GuidedVelocity(const std::shared_ptr<const DitLayout>& layout, double guidance, TextCondition negative,
                 bool recompute);

  // velocity [B, S, C]. keep: Backward follows.
  void Forward(const ParameterMemory& memory, const VelocityInput& input, bool keep, float* velocity);
  // After a Forward with keep: Backward will be of the samples `kept` only, kept[i] in place i. Each kept[i] is i or
  // lies behind the last place. The caller keeps the same rows of its latents and of dvelocity.
  void KeepSamples(const std::vector<Index>& kept);

  // Adds the parameter gradients of dvelocity [B, S, C]; after a Forward with keep, same memory.
  // dtext [B, T, width], if not null, receives the gradient of the conditional text embeddings.
  void Backward(const ParameterMemory& memory, const float* dvelocity, float* dtext = nullptr);

  const DitLayout& layout() const { return conditional_.layout(); }
  bool guided() const { return guidance_ > 1.0f; }

 private:
  void FillText(const std::vector<const TextCondition*>& conditions, Buffer& text);

  float guidance_;
  TextCondition negative_;
  bool recompute_;
  Dit conditional_, unconditional_;
  DitInput input_, negative_input_;
  Buffer text_, negative_text_;
  Buffer v_cond_, v_uncond_, dv_cond_, dv_uncond_;
};

}  // namespace spotlight
