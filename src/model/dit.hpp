// The Qwen-Image diffusion transformer (QwenImageTransformer2DModel of diffusers 0.42), forward and backward, from
// weights that may be stored in bfloat16. What flows through the branches of the blocks is fp32 or bfloat16
// (kernels/activations.hpp); the streams that they are added to, inputs and outputs, and sums are always fp32.
//
// Letters: B batch, T_b text tokens of sample b, S image tokens, d width (heads * head size), U distinct noise
// levels of the batch, L blocks. Rows of a stream are the tokens of all samples, one sample after the other, without
// padding (kernels/token_rows.hpp). The network predicts the velocity v = noise - image.
// The result of a sample depends neither on the other samples of its batch, nor on the number of ranks that share its
// tokens. In the last block the text branch after attention cannot influence the velocity: it is not computed and its
// parameters get no gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/sequence_group.hpp"
#include "kernels/activations.hpp"
#include "model/dit_layout.hpp"
#include "model/rope.hpp"
#include "model/step_cache.hpp"

namespace spotlight {

// The inputs of one pass. Pointers are kernel memory (kernels/buffer.hpp).
struct DitInput {
  std::vector<Index> text_tokens;           // [B] T_b, whole samples
  std::vector<ImageShape> images;           // the same for each sample; S = sum of tokens
  const float* image = nullptr;             // [image rows, in_channels] packed noisy latents
  const float* text = nullptr;              // [text rows, joint_attention_dim]
  const float* projected_text = nullptr;    // [text rows, d] instead of `text`: what ProjectText gave
  const std::uint8_t* text_mask = nullptr;  // one per text row of whole samples, 1 = real token; null: all real
  std::vector<float> levels;                // [U] distinct sigmas in [0, 1]
  std::vector<int> level_index;             // [B]
  // Ranks that run this pass together; null: this one alone. `image`, `text` and the velocity are then this rank's
  // shares of each sample, ShareOf(tokens, index, size). The degree divides the heads.
  SequenceGroup* group = nullptr;
  StepReuse reuse;  // of earlier passes' results, for all or some samples; without `text_mask` and without `keep`

  Index batch() const { return static_cast<Index>(text_tokens.size()); }
  Index image_tokens() const;
};

struct DitOptions {
  bool keep = false;              // keep what Backward needs
  bool recompute = false;         // with keep: only the block inputs, Backward recomputes each block
  bool last_text_branch = false;  // compute the last block's text output too (parity tests look at it)
};

// Where Backward puts gradients of the inputs; null: not wanted. Overwritten.
struct InputGradients {
  float* image = nullptr;
  float* text = nullptr;
};

struct DitActivations;  // model/dit_activations.hpp

// Runs passes over one layout; owns the activations, which are reused between calls, whatever the group.
class Dit {
 public:
  // activations: how those of the branches are stored; one that the active back end computes from.
  explicit Dit(std::shared_ptr<const DitLayout> layout, ElementType activations = ElementType::kFp32);
  ~Dit();
  Dit(Dit&&) noexcept;

  const DitLayout& layout() const { return *layout_; }

  // text [rows, joint_attention_dim] -> projected [rows, d] = txt_in(txt_norm(text)): the same at every step of a
  // denoising run.
  void ProjectText(Parameters& parameters, Index rows, const float* text, float* projected);

  // velocity [image rows, 4 * out_channels].
  void Forward(Parameters& parameters, const DitInput& input, const DitOptions& options, float* velocity);

  // After a Forward with keep and the same parameters and input: adds parameter gradients where parameters have room
  // for them, and tells them part by part when a gradient is complete, in the layout's backward_order.
  void Backward(Parameters& parameters, const DitInput& input, const float* dvelocity,
                const InputGradients& input_gradients);

  // After a Forward with keep: what Backward reads is cut down to the samples `kept`, in ascending order. The next
  // Backward is of an input of theirs alone.
  void KeepSamples(const DitInput& input, const std::vector<Index>& kept);

  const DitActivations& activations() const { return *activations_; }

 private:
  void EmbedLevels(Parameters& parameters, const DitInput& input);
  void EmbedImage(Parameters& parameters, const DitInput& input);
  void EmbedText(Parameters& parameters, const DitInput& input);
  void ForwardBlocks(Parameters& parameters, const DitInput& input);
  void ForwardReusing(Parameters& parameters, const DitInput& input);
  void RunBlocks(int first, Parameters& parameters, const DitInput& input);
  std::vector<std::int64_t> RecordingKey(int first, Parameters& parameters, const DitInput& input) const;
  void Narrow(const DitInput& input, const std::vector<Index>& samples);
  void BlockModulation(int block, Parameters& parameters, Index levels);
  void ForwardBlock(int block, Parameters& parameters, const DitInput& input);
  void Attention(int block, const DitInput& input);
  void BackwardBlock(int block, Parameters& parameters, const DitInput& input);
  void AttentionGradient(int block, const DitInput& input);
  void BackwardEmbedding(Parameters& parameters, const DitInput& input, const InputGradients& input_gradients);
  bool TextBranchUsed(int block) const;

  std::shared_ptr<const DitLayout> layout_;
  std::unique_ptr<DitActivations> activations_;
};

}  // namespace spotlight
