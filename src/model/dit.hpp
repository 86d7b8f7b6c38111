// The Qwen-Image diffusion transformer (QwenImageTransformer2DModel of diffusers 0.42): parameter
// layout, forward and backward. fp32.
//
// Letters: B batch, T text tokens, S image tokens, d width (heads * head size), U distinct noise
// levels of the batch, L blocks. The network predicts the velocity v = noise - image.
// The result of a sample does not depend on the other samples of its batch.
// In the last block the text branch after attention cannot influence the velocity: it is not computed
// and its parameters get no gradient.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/transformer_config.hpp"
#include "model/adapted_linear.hpp"
#include "model/parameters.hpp"
#include "model/rope.hpp"

namespace spotlight {

// LoRA on the linear layers of all blocks whose name ends in one of `targets`; rank 0: none.
struct LoraSettings {
  int rank = 0;
  double alpha = 0;
  std::vector<std::string> targets;
};

// Parameters of one stream (image or text) of a block, as offsets or layers.
struct StreamLayout {
  AdaptedLinear modulation;  // d -> 6d: shift1, scale1, gate1, shift2, scale2, gate2
  AdaptedLinear qkv;         // d -> 3d, three projections side by side
  Index norm_q = 0, norm_k = 0;
  AdaptedLinear out;  // d -> d
  AdaptedLinear mlp_up, mlp_down;
};

struct BlockLayout {
  StreamLayout image, text;
};

// Where everything lies in the flat parameter buffers.
class DitLayout {
 public:
  DitLayout(const TransformerConfig& config, const LoraSettings& lora);

  const TransformerConfig& config() const { return config_; }
  const LoraSettings& lora() const { return lora_; }
  const ParameterLayout& base() const { return base_; }
  const ParameterLayout& adapter() const { return adapter_; }

  AdaptedLinear time_in, time_out, image_in, text_in, norm_out, proj_out;
  Index text_norm = 0;
  std::vector<BlockLayout> blocks;

 private:
  AdaptedLinear AddLinear(const std::string& name, Index in, Index out);
  AdaptedLinear AddBlockLinear(const std::string& prefix, const std::vector<std::string>& names, Index in, Index out);
  StreamLayout AddStream(const std::string& prefix, bool image);

  TransformerConfig config_;
  LoraSettings lora_;
  ParameterLayout base_, adapter_;
};

// The inputs of one pass. Pointers are kernel memory (kernels/buffer.hpp).
struct DitInput {
  Index batch = 0;                          // B
  std::vector<ImageShape> images;           // the same for each sample; S = sum of tokens
  Index text_tokens = 0;                    // T
  const float* image = nullptr;             // [B, S, in_channels] packed noisy latents
  const float* text = nullptr;              // [B, T, joint_attention_dim]
  const std::uint8_t* text_mask = nullptr;  // [B, T], 1 = real token; null: all real
  std::vector<float> levels;                // [U] distinct sigmas in [0, 1]
  std::vector<int> level_index;             // [B]

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

// Runs passes over one layout; owns the activations, which are reused between calls.
class Dit {
 public:
  explicit Dit(std::shared_ptr<const DitLayout> layout);
  ~Dit();
  Dit(Dit&&) noexcept;

  const DitLayout& layout() const { return *layout_; }

  // velocity [B, S, 4 * out_channels].
  void Forward(const ParameterMemory& memory, const DitInput& input, const DitOptions& options, float* velocity);

  // After a Forward with keep and the same memory and input: adds parameter gradients to
  // memory.*_gradient (null ones are skipped).
  void Backward(const ParameterMemory& memory, const DitInput& input, const float* dvelocity,
                const InputGradients& input_gradients);

  // After a Forward with keep of `batch` samples: what Backward reads of sample `to` becomes that of `from`. The next
  // Backward may then be of the first samples only, with an input of theirs.
  void CopySample(Index batch, Index from, Index to);

  const DitActivations& activations() const { return *activations_; }

 private:
  void ForwardEmbedding(const ParameterMemory& memory, const DitInput& input);
  void ForwardBlock(int block, const ParameterMemory& memory, const DitInput& input);
  void BackwardBlock(int block, const ParameterMemory& memory, const DitInput& input);
  void BackwardEmbedding(const ParameterMemory& memory, const DitInput& input, const InputGradients& input_gradients);
  bool TextBranchUsed(int block) const;

  std::shared_ptr<const DitLayout> layout_;
  std::unique_ptr<DitActivations> activations_;
};

}  // namespace spotlight
