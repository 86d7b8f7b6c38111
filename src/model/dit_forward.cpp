// Forward pass of the transformer; see model/dit.hpp for letters and source.
#include <algorithm>

#include "base/error.hpp"
#include "kernels/activation.hpp"
#include "kernels/norm.hpp"
#include "kernels/qk_rope.hpp"
#include "model/dit.hpp"
#include "model/dit_activations.hpp"

namespace spotlight {
namespace {

constexpr float kEps = 1e-6f;
constexpr Index kSinusoid = 256;

void Upload(const std::vector<float>& host, Buffer& buffer) {
  buffer.Resize(static_cast<Index>(host.size()));
  buffer.CopyFromHost(host);
}

// The part `which` (0..5: shift1, scale1, gate1, shift2, scale2, gate2) of a [U, 6d] table.
Modulation Part(const Buffer& table, Index which, Index d, const std::vector<int>& level_index) {
  return {table.data() + which * d, 6 * d, level_index.data()};
}

void UpdateRope(const TransformerConfig& config, const DitInput& input, RopeBuffers& rope) {
  if (rope.text_tokens == input.text_tokens && rope.images == input.images) return;
  const RopeTable image = ImageRope(config.axes_dims_rope, input.images);
  const RopeTable text = TextRope(config.axes_dims_rope, input.images, input.text_tokens);
  Upload(image.cos, rope.image_cos);
  Upload(image.sin, rope.image_sin);
  Upload(text.cos, rope.text_cos);
  Upload(text.sin, rope.text_sin);
  rope.images = input.images;
  rope.text_tokens = input.text_tokens;
}

}  // namespace

Index DitInput::image_tokens() const {
  Index tokens = 0;
  for (const ImageShape& image : images) tokens += image.tokens();
  return tokens;
}

Dit::Dit(std::shared_ptr<const DitLayout> layout)
    : layout_(std::move(layout)), activations_(std::make_unique<DitActivations>()) {}
Dit::~Dit() = default;
Dit::Dit(Dit&&) noexcept = default;

bool Dit::TextBranchUsed(int block) const {
  return block + 1 < layout_->config().num_layers || activations_->options.last_text_branch;
}

void Dit::Forward(const ParameterMemory& memory, const DitInput& input, const DitOptions& options, float* velocity) {
  const Index d = layout_->config().width(), levels = static_cast<Index>(input.levels.size());
  const Index rows = input.batch * input.image_tokens(), text_rows = input.batch * input.text_tokens;
  const int layers = layout_->config().num_layers;
  DitActivations& act = *activations_;
  act.options = options;
  act.blocks.resize(options.keep && !options.recompute ? static_cast<std::size_t>(layers) : 1);
  if (options.recompute) {
    act.image_inputs.resize(static_cast<std::size_t>(layers));
    act.text_inputs.resize(static_cast<std::size_t>(layers));
  }
  ForwardEmbedding(memory, input);
  for (int i = 0; i < layers; ++i) {
    if (options.keep && options.recompute) {
      Buffer& image_input = act.image_inputs[static_cast<std::size_t>(i)];
      Buffer& text_input = act.text_inputs[static_cast<std::size_t>(i)];
      image_input.Resize(rows * d);
      text_input.Resize(text_rows * d);
      CopyFloats(act.image.data(), image_input.data(), rows * d);
      CopyFloats(act.text.data(), text_input.data(), text_rows * d);
    }
    ForwardBlock(i, memory, input);
  }
  act.final_modulation.Resize(levels * 2 * d);
  act.linear.Forward(layout_->norm_out, memory, levels, act.temb_act.data(), act.final_modulation.data());
  act.final_mean.Resize(rows);
  act.final_rstd.Resize(rows);
  act.normed_out.Resize(rows * d);
  // Here the scale comes first, unlike in the blocks.
  LayerNormModulateForward(input.batch, input.image_tokens(), d, kEps, act.image.data(),
                           {act.final_modulation.data() + d, 2 * d, act.level_index.data()},
                           {act.final_modulation.data(), 2 * d, act.level_index.data()}, act.normed_out.data(),
                           act.final_mean.data(), act.final_rstd.data());
  act.linear.Forward(layout_->proj_out, memory, rows, act.normed_out.data(), velocity);  // [B, S, 4 out]
}

void Dit::ForwardEmbedding(const ParameterMemory& memory, const DitInput& input) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(input.level_index.size()) == input.batch, "one noise level index a sample");
  const TransformerConfig& config = layout_->config();
  const Index d = config.width(), levels = static_cast<Index>(input.levels.size());
  const Index rows = input.batch * input.image_tokens(), text_rows = input.batch * input.text_tokens;
  DitActivations& act = *activations_;
  UpdateRope(config, input, act.rope);
  act.level_index = input.level_index;

  Buffer sigma;
  Upload(input.levels, sigma);
  act.sinusoid.Resize(levels * kSinusoid);
  for (Buffer* buffer : {&act.time_hidden, &act.time_act, &act.temb, &act.temb_act}) buffer->Resize(levels * d);
  TimeSinusoid(levels, sigma.data(), act.sinusoid.data());  // [U, 256]
  act.linear.Forward(layout_->time_in, memory, levels, act.sinusoid.data(), act.time_hidden.data());
  SiluForward(levels * d, act.time_hidden.data(), act.time_act.data());
  act.linear.Forward(layout_->time_out, memory, levels, act.time_act.data(), act.temb.data());
  SiluForward(levels * d, act.temb.data(), act.temb_act.data());  // every modulation starts with this SiLU

  act.image.Resize(rows * d);
  act.linear.Forward(layout_->image_in, memory, rows, input.image, act.image.data());  // [B, S, d]
  const Index text_width = config.joint_attention_dim;
  act.text_normed.Resize(text_rows * text_width);
  act.text_rstd.Resize(text_rows);
  act.text.Resize(text_rows * d);
  RmsNormForward(text_rows, text_width, kEps, input.text, memory.base + layout_->text_norm, act.text_normed.data(),
                 act.text_rstd.data());
  act.linear.Forward(layout_->text_in, memory, text_rows, act.text_normed.data(), act.text.data());  // [B, T, d]
}

void Dit::ForwardBlock(int block_index, const ParameterMemory& memory, const DitInput& input) {
  const TransformerConfig& config = layout_->config();
  const BlockLayout& layout = layout_->blocks[static_cast<std::size_t>(block_index)];
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  const Index d = config.width(), heads = config.num_attention_heads, head = config.attention_head_dim;
  const Index batch = input.batch, levels = static_cast<Index>(input.levels.size());
  const Index image_tokens = input.image_tokens(), text_tokens = input.text_tokens;
  const Index joint = text_tokens + image_tokens;
  const bool text_used = TextBranchUsed(block_index);
  for (Buffer* buffer : {&block.q, &block.k, &block.v}) buffer->Resize(batch * joint * d);
  block.lse.Resize(batch * heads * joint);

  // LN1, modulation, q/k/v with norm and rope into attention layout.
  const auto before_attention = [&](const StreamLayout& stream, StreamActivations& s, Buffer& x, Index tokens,
                                    Index first, const Buffer& cos, const Buffer& sin) {
    const Index rows = batch * tokens;
    s.modulation.Resize(levels * 6 * d);
    act.linear.Forward(stream.modulation, memory, levels, act.temb_act.data(), s.modulation.data());
    s.mean1.Resize(rows);
    s.rstd1.Resize(rows);
    s.normed1.Resize(rows * d);
    s.qkv.Resize(rows * 3 * d);
    if (act.options.keep) {
      s.input.Resize(rows * d);
      CopyFloats(x.data(), s.input.data(), rows * d);
    }
    LayerNormModulateForward(batch, tokens, d, kEps, x.data(), Part(s.modulation, 0, d, act.level_index),
                             Part(s.modulation, 1, d, act.level_index), s.normed1.data(), s.mean1.data(),
                             s.rstd1.data());
    act.linear.Forward(stream.qkv, memory, rows, s.normed1.data(), s.qkv.data());  // [B, X, 3d]
    QkRopeForward({batch, tokens, joint, first, heads, head, kEps}, s.qkv.data(), memory.base + stream.norm_q,
                  memory.base + stream.norm_k, cos.data(), sin.data(), block.q.data(), block.k.data(), block.v.data());
    s.attention.Resize(rows * d);
  };
  before_attention(layout.text, block.text, act.text, text_tokens, 0, act.rope.text_cos, act.rope.text_sin);
  before_attention(layout.image, block.image, act.image, image_tokens, text_tokens, act.rope.image_cos,
                   act.rope.image_sin);

  AttentionForward({batch, heads, head, text_tokens, image_tokens}, block.q.data(), block.k.data(), block.v.data(),
                   input.text_mask, text_used ? block.text.attention.data() : nullptr, block.image.attention.data(),
                   block.lse.data());

  // Output projection and gate, then LN2, modulation, MLP and gate.
  const auto after_attention = [&](const StreamLayout& stream, StreamActivations& s, Buffer& x, Index tokens) {
    const Index rows = batch * tokens;
    for (Buffer* buffer : {&s.attention_out, &s.normed2, &s.mlp_out}) buffer->Resize(rows * d);
    s.mean2.Resize(rows);
    s.rstd2.Resize(rows);
    s.mlp_hidden.Resize(rows * 4 * d);
    s.mlp_act.Resize(rows * 4 * d);
    act.linear.Forward(stream.out, memory, rows, s.attention.data(), s.attention_out.data());
    GatedResidualForward(batch, tokens, d, Part(s.modulation, 2, d, act.level_index), s.attention_out.data(), x.data());
    if (act.options.keep) {
      s.middle.Resize(rows * d);
      CopyFloats(x.data(), s.middle.data(), rows * d);
    }
    LayerNormModulateForward(batch, tokens, d, kEps, x.data(), Part(s.modulation, 3, d, act.level_index),
                             Part(s.modulation, 4, d, act.level_index), s.normed2.data(), s.mean2.data(),
                             s.rstd2.data());
    act.linear.Forward(stream.mlp_up, memory, rows, s.normed2.data(), s.mlp_hidden.data());  // [B, X, 4d]
    GeluForward(rows * 4 * d, s.mlp_hidden.data(), s.mlp_act.data());
    act.linear.Forward(stream.mlp_down, memory, rows, s.mlp_act.data(), s.mlp_out.data());
    GatedResidualForward(batch, tokens, d, Part(s.modulation, 5, d, act.level_index), s.mlp_out.data(), x.data());
  };
  after_attention(layout.image, block.image, act.image, image_tokens);
  if (text_used) after_attention(layout.text, block.text, act.text, text_tokens);
}

}  // namespace spotlight
