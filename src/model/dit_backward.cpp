// Backward pass of the transformer: the adjoint of dit_forward.cpp, block by block from the last.
#include <algorithm>

#include "base/error.hpp"
#include "kernels/activation.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/qk_rope.hpp"
#include "model/dit.hpp"
#include "model/dit_activations.hpp"

namespace spotlight {
namespace {

constexpr float kEps = 1e-6f;

Modulation Part(const Buffer& table, Index which, Index d, const std::vector<int>& level_index) {
  return {table.data() + which * d, 6 * d, level_index.data()};
}

// With frozen base weights nothing behind the modulation is trained: its gradient is not wanted.
ModulationGradient GradientPart(Buffer& table, Index which, Index d, const std::vector<int>& level_index, bool wanted) {
  return {wanted ? table.data() + which * d : nullptr, 6 * d, level_index.data()};
}

}  // namespace

void Dit::Backward(const ParameterMemory& memory, const DitInput& input, const float* dvelocity,
                   const InputGradients& input_gradients) {
  DitActivations& act = *activations_;
  SPOTLIGHT_REQUIRE(act.options.keep, "Backward needs a Forward with keep");
  const Index d = layout_->config().width(), levels = static_cast<Index>(input.levels.size());
  const Index rows = input.batch * input.image_tokens(), text_rows = input.batch * input.text_tokens;
  const Index most_rows = std::max(rows, text_rows);
  const bool base_wanted = memory.base_gradient != nullptr;

  act.dimage.Resize(rows * d);
  act.dtext.Resize(text_rows * d);
  act.dimage.Zero();
  act.dtext.Zero();
  act.dtemb_act.Resize(levels * d);
  act.dtemb_act.Zero();
  act.dbranch.Resize(most_rows * d);
  act.dnormed.Resize(most_rows * d);
  act.dhidden.Resize(most_rows * 4 * d);
  act.dqkv.Resize(most_rows * 3 * d);
  act.dattention_image.Resize(rows * d);
  act.dattention_text.Resize(text_rows * d);
  for (Buffer* buffer : {&act.dq, &act.dk, &act.dv}) buffer->Resize((rows + text_rows) * d);

  act.linear.Backward(layout_->proj_out, memory, rows, act.normed_out.data(), dvelocity, act.dnormed.data());
  Buffer dfinal(levels * 2 * d);
  dfinal.Zero();
  const auto final_gradient = [&](Index which) {
    return ModulationGradient{base_wanted ? dfinal.data() + which * d : nullptr, 2 * d, act.level_index.data()};
  };
  LayerNormModulateBackward(input.batch, input.image_tokens(), d, act.image.data(), act.final_mean.data(),
                            act.final_rstd.data(), {act.final_modulation.data(), 2 * d, act.level_index.data()},
                            act.dnormed.data(), act.dimage.data(), final_gradient(1), final_gradient(0));
  if (base_wanted) {
    act.linear.Backward(layout_->norm_out, memory, levels, act.temb_act.data(), dfinal.data(), act.dtemb_act.data());
  }

  for (int i = layout_->config().num_layers - 1; i >= 0; --i) {
    if (act.options.recompute) {
      CopyFloats(act.image_inputs[static_cast<std::size_t>(i)].data(), act.image.data(), rows * d);
      CopyFloats(act.text_inputs[static_cast<std::size_t>(i)].data(), act.text.data(), text_rows * d);
      ForwardBlock(i, memory, input);
    }
    BackwardBlock(i, memory, input);
  }
  BackwardEmbedding(memory, input, input_gradients);
}

void Dit::CopySample(Index batch, Index from, Index to) {
  DitActivations& act = *activations_;
  const auto copy = [&](auto&... buffers) { (CopyRow(buffers, batch, from, to), ...); };
  for (BlockActivations& block : act.blocks) {
    for (StreamActivations* s : {&block.image, &block.text}) {
      copy(s->input, s->middle, s->mean1, s->rstd1, s->mean2, s->rstd2, s->normed1, s->normed2, s->qkv, s->attention,
           s->attention_out, s->mlp_hidden, s->mlp_act, s->mlp_out);
    }
    copy(block.q, block.k, block.v, block.lse);
  }
  for (Buffer& input : act.image_inputs) copy(input);
  for (Buffer& input : act.text_inputs) copy(input);
  copy(act.text_normed, act.text_rstd, act.image, act.final_mean, act.final_rstd, act.normed_out);
  act.level_index[static_cast<std::size_t>(to)] = act.level_index[static_cast<std::size_t>(from)];
}

void Dit::BackwardBlock(int block_index, const ParameterMemory& memory, const DitInput& input) {
  const TransformerConfig& config = layout_->config();
  const BlockLayout& layout = layout_->blocks[static_cast<std::size_t>(block_index)];
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  const Index d = config.width(), heads = config.num_attention_heads, head = config.attention_head_dim;
  const Index batch = input.batch, levels = static_cast<Index>(input.levels.size());
  const Index image_tokens = input.image_tokens(), text_tokens = input.text_tokens;
  const Index joint = text_tokens + image_tokens;
  const bool base_wanted = memory.base_gradient != nullptr;
  const bool text_used = TextBranchUsed(block_index);
  const std::vector<int>& index = act.level_index;
  for (Buffer* buffer : {&act.dmodulation_image, &act.dmodulation_text}) {
    buffer->Resize(levels * 6 * d);
    buffer->Zero();
  }

  // MLP branch, then the gate and the output projection of attention.
  const auto after_attention = [&](const StreamLayout& stream, StreamActivations& s, Buffer& dx, Buffer& dmodulation,
                                   Buffer& dattention, Index tokens) {
    const Index rows = batch * tokens;
    GatedResidualBackward(batch, tokens, d, Part(s.modulation, 5, d, index), s.mlp_out.data(), dx.data(),
                          act.dbranch.data(), GradientPart(dmodulation, 5, d, index, base_wanted));
    act.linear.Backward(stream.mlp_down, memory, rows, s.mlp_act.data(), act.dbranch.data(), act.dhidden.data());
    GeluBackward(rows * 4 * d, s.mlp_hidden.data(), act.dhidden.data(), act.dhidden.data());
    act.linear.Backward(stream.mlp_up, memory, rows, s.normed2.data(), act.dhidden.data(), act.dnormed.data());
    LayerNormModulateBackward(batch, tokens, d, s.middle.data(), s.mean2.data(), s.rstd2.data(),
                              Part(s.modulation, 4, d, index), act.dnormed.data(), dx.data(),
                              GradientPart(dmodulation, 3, d, index, base_wanted),
                              GradientPart(dmodulation, 4, d, index, base_wanted));
    GatedResidualBackward(batch, tokens, d, Part(s.modulation, 2, d, index), s.attention_out.data(), dx.data(),
                          act.dbranch.data(), GradientPart(dmodulation, 2, d, index, base_wanted));
    act.linear.Backward(stream.out, memory, rows, s.attention.data(), act.dbranch.data(), dattention.data());
  };
  after_attention(layout.image, block.image, act.dimage, act.dmodulation_image, act.dattention_image, image_tokens);
  if (text_used) {
    after_attention(layout.text, block.text, act.dtext, act.dmodulation_text, act.dattention_text, text_tokens);
  }

  AttentionBackward({batch, heads, head, text_tokens, image_tokens}, block.q.data(), block.k.data(), block.v.data(),
                    input.text_mask, block.text.attention.data(), block.image.attention.data(), block.lse.data(),
                    text_used ? act.dattention_text.data() : nullptr, act.dattention_image.data(), act.dq.data(),
                    act.dk.data(), act.dv.data());

  // q/k/v projection and LN1, then the modulation itself.
  const auto before_attention = [&](const StreamLayout& stream, StreamActivations& s, Buffer& dx, Buffer& dmodulation,
                                    Index tokens, Index first, const Buffer& cos, const Buffer& sin) {
    const Index rows = batch * tokens;
    float* dnorm_q = base_wanted ? memory.base_gradient + stream.norm_q : nullptr;
    float* dnorm_k = base_wanted ? memory.base_gradient + stream.norm_k : nullptr;
    QkRopeBackward({batch, tokens, joint, first, heads, head, kEps}, s.qkv.data(), memory.base + stream.norm_q,
                   memory.base + stream.norm_k, cos.data(), sin.data(), act.dq.data(), act.dk.data(), act.dv.data(),
                   act.dqkv.data(), dnorm_q, dnorm_k);
    act.linear.Backward(stream.qkv, memory, rows, s.normed1.data(), act.dqkv.data(), act.dnormed.data());
    LayerNormModulateBackward(batch, tokens, d, s.input.data(), s.mean1.data(), s.rstd1.data(),
                              Part(s.modulation, 1, d, index), act.dnormed.data(), dx.data(),
                              GradientPart(dmodulation, 0, d, index, base_wanted),
                              GradientPart(dmodulation, 1, d, index, base_wanted));
    if (!base_wanted) return;
    act.dbranch.Resize(std::max(act.dbranch.size(), levels * d));
    act.linear.Backward(stream.modulation, memory, levels, act.temb_act.data(), dmodulation.data(), act.dbranch.data());
    Axpy(levels * d, 1.0f, act.dbranch.data(), act.dtemb_act.data());
  };
  before_attention(layout.image, block.image, act.dimage, act.dmodulation_image, image_tokens, text_tokens,
                   act.rope.image_cos, act.rope.image_sin);
  before_attention(layout.text, block.text, act.dtext, act.dmodulation_text, text_tokens, 0, act.rope.text_cos,
                   act.rope.text_sin);
}

void Dit::BackwardEmbedding(const ParameterMemory& memory, const DitInput& input,
                            const InputGradients& input_gradients) {
  const TransformerConfig& config = layout_->config();
  const Index d = config.width(), levels = static_cast<Index>(input.levels.size());
  const Index rows = input.batch * input.image_tokens(), text_rows = input.batch * input.text_tokens;
  const bool base_wanted = memory.base_gradient != nullptr;
  DitActivations& act = *activations_;

  if (base_wanted || input_gradients.image != nullptr) {
    act.linear.Backward(layout_->image_in, memory, rows, input.image, act.dimage.data(), input_gradients.image);
  }
  if (base_wanted || input_gradients.text != nullptr) {
    Buffer dtext_normed(text_rows * config.joint_attention_dim);
    act.linear.Backward(layout_->text_in, memory, text_rows, act.text_normed.data(), act.dtext.data(),
                        dtext_normed.data());
    RmsNormBackward(text_rows, config.joint_attention_dim, input.text, memory.base + layout_->text_norm,
                    act.text_rstd.data(), dtext_normed.data(), input_gradients.text,
                    base_wanted ? memory.base_gradient + layout_->text_norm : nullptr);
  }
  if (!base_wanted) return;
  Buffer dtemb(levels * d), dtime_act(levels * d), dtime_hidden(levels * d);
  dtemb.Zero();
  dtime_hidden.Zero();
  SiluBackward(levels * d, act.temb.data(), act.dtemb_act.data(), dtemb.data());
  act.linear.Backward(layout_->time_out, memory, levels, act.time_act.data(), dtemb.data(), dtime_act.data());
  SiluBackward(levels * d, act.time_hidden.data(), dtime_act.data(), dtime_hidden.data());
  act.linear.Backward(layout_->time_in, memory, levels, act.sinusoid.data(), dtime_hidden.data(), nullptr);
}

}  // namespace spotlight
