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

// With frozen base weights nothing behind the modulation is trained: its gradient is not wanted.
ModulationGradient GradientPart(Buffer& table, Index which, Index d, const std::vector<int>& level_index, bool wanted) {
  return {wanted ? table.data() + which * d : nullptr, 6 * d, level_index.data()};
}

}  // namespace

void Dit::Backward(Parameters& parameters, const DitInput& input, const float* dvelocity,
                   const InputGradients& input_gradients) {
  DitActivations& act = *activations_;
  SPOTLIGHT_REQUIRE(act.options.keep, "Backward needs a Forward with keep");
  const Index d = layout_->config().width(), levels = static_cast<Index>(input.levels.size());
  const Index rows = act.shards.rows(Stream::kImage).rows(), text_rows = act.shards.rows(Stream::kText).rows();
  const Index most_rows = std::max(rows, text_rows);

  act.dimage.Resize(rows * d);
  act.dtext.Resize(text_rows * d);
  act.dimage.Zero();
  act.dtext.Zero();
  act.dtemb_act.Resize(levels * d);
  act.dtemb_act.Zero();
  act.dtemb_part.Resize(levels * d);
  act.dbranch.Resize(act.type, most_rows * d);
  act.dnormed.Resize(act.type, most_rows * d);
  act.dhidden.Resize(act.type, most_rows * 4 * d);
  act.dqkv.Resize(act.type, most_rows * 3 * d);
  act.dattention_image.Resize(act.type, rows * d);
  act.dattention_text.Resize(act.type, text_rows * d);

  const PartMemory stem = parameters.Use(DitLayout::kStem);
  const bool base_wanted = stem.trains_base();
  SPOTLIGHT_REQUIRE(!base_wanted || parameters.modulation == nullptr, "trained base weights need their modulation");
  act.linear.Backward(layout_->proj_out, stem, 0, rows, act.normed_out.data(), dvelocity, act.dnormed.data(),
                      &act.shards, Stream::kImage);
  act.dfinal_modulation.Resize(levels * 2 * d);
  act.dfinal_modulation.Zero();
  const auto final_gradient = [&](Index which) {
    return ModulationGradient{base_wanted ? act.dfinal_modulation.data() + which * d : nullptr, 2 * d,
                              act.level_index.data()};
  };
  act.sums.LayerNormModulate(act.shards, Stream::kImage, d, act.image.data(), act.final_mean.data(),
                             act.final_rstd.data(), {act.final_modulation, 2 * d, act.level_index.data()},
                             act.dnormed.data(), act.dimage.data(), final_gradient(1), final_gradient(0));

  for (int i = layout_->config().num_layers - 1; i >= 0; --i) {
    if (act.options.recompute) {
      CopyFloats(act.image_inputs[static_cast<std::size_t>(i)].data(), act.image.data(), rows * d);
      CopyFloats(act.text_inputs[static_cast<std::size_t>(i)].data(), act.text.data(), text_rows * d);
      ForwardBlock(i, parameters, input);
    }
    BackwardBlock(i, parameters, input);
  }
  BackwardEmbedding(parameters, input, input_gradients);
}

void Dit::KeepSamples(const DitInput& input, const std::vector<Index>& kept) {
  DitActivations& act = *activations_;
  SPOTLIGHT_REQUIRE(std::is_sorted(kept.begin(), kept.end()) && !kept.empty(), "kept samples ascend");
  const TokenRows all_text = act.shards.all_rows(Stream::kText), all_image = act.shards.all_rows(Stream::kImage);
  std::vector<Index> text_tokens, joint_tokens;
  for (Index b = 0; b < input.batch(); ++b) joint_tokens.push_back(all_text.tokens(b) + all_image.tokens(b));
  const TokenRowTable joint(joint_tokens);
  const auto keep = [&](const TokenRows& rows, const auto&... buffers) {
    const auto keep_one = [&](auto& buffer) {
      if (buffer.size() > 0 && rows.rows() > 0) KeepRows(buffer.data(), rows, buffer.size() / rows.rows(), kept);
    };
    (keep_one(*buffers), ...);
  };
  const auto keep_stream = [&](StreamActivations& s, Stream stream) {
    keep(act.shards.rows(stream), &s.input, &s.middle, &s.mean1, &s.rstd1, &s.mean2, &s.rstd2, &s.normed1, &s.normed2,
         &s.qkv, &s.attention, &s.attention_out, &s.mlp_hidden, &s.mlp_act, &s.mlp_out);
    keep(act.shards.all_rows(stream), &s.attention_heads);
  };
  for (BlockActivations& block : act.blocks) {
    keep_stream(block.text, Stream::kText);
    keep_stream(block.image, Stream::kImage);
    keep(joint.view(), &block.q, &block.k, &block.v, &block.lse);
  }
  const TokenRows text = act.shards.rows(Stream::kText), image = act.shards.rows(Stream::kImage);
  for (Buffer& block_input : act.text_inputs) keep(text, &block_input);
  for (Buffer& block_input : act.image_inputs) keep(image, &block_input);
  keep(text, &act.text_normed, &act.text_rstd);
  keep(image, &act.image, &act.final_mean, &act.final_rstd, &act.normed_out);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    act.level_index[i] = act.level_index[static_cast<std::size_t>(kept[i])];
    text_tokens.push_back(input.text_tokens[static_cast<std::size_t>(kept[i])]);
  }
  act.level_index.resize(kept.size());
  act.shards.Assign(input.group, text_tokens, std::vector<Index>(kept.size(), input.image_tokens()));
}

void Dit::BackwardBlock(int block_index, Parameters& parameters, const DitInput& input) {
  const TransformerConfig& config = layout_->config();
  const BlockLayout& layout = layout_->blocks[static_cast<std::size_t>(block_index)];
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  const Index d = config.width(), heads = config.num_attention_heads, head = config.attention_head_dim;
  const Index levels = static_cast<Index>(input.levels.size());
  const TokenRows text = act.shards.rows(Stream::kText), image = act.shards.rows(Stream::kImage);
  const bool text_used = TextBranchUsed(block_index), alone = act.shards.ranks() == 1;
  const std::vector<int>& index = act.level_index;
  const PartMemory memory = parameters.Use(layout_->block_part(block_index));
  const bool base_wanted = memory.trains_base();
  for (Buffer* buffer : {&act.dmodulation_image, &act.dmodulation_text}) {
    buffer->Resize(levels * 6 * d);
    buffer->Zero();
  }
  const auto linear = [&](const AdaptedLinear& layer, const ActivationBuffer& x, const ActivationBuffer& dy,
                          Activations dx, Stream stream) {
    act.linear.Backward(layer, memory, parameters.lora_scale, act.shards.rows(stream).rows(), x.data(), dy.data(), dx,
                        &act.shards, stream);
  };

  // MLP branch, then the gate and the output projection of attention.
  const auto after_attention = [&](const StreamLayout& layers, StreamActivations& s, Buffer& dx, Buffer& dmodulation,
                                   ActivationBuffer& dattention, Stream stream) {
    act.sums.GatedResidual(act.shards, stream, d, ModulationPart(s.modulation, 5, d, index), s.mlp_out.data(),
                           dx.data(), act.dbranch.data(), GradientPart(dmodulation, 5, d, index, base_wanted));
    linear(layers.mlp_down, s.mlp_act, act.dbranch, act.dhidden.data(), stream);
    GeluBackward(act.shards.rows(stream).rows() * 4 * d, s.mlp_hidden.data(), act.dhidden.data(), act.dhidden.data());
    linear(layers.mlp_up, s.normed2, act.dhidden, act.dnormed.data(), stream);
    act.sums.LayerNormModulate(act.shards, stream, d, s.middle.data(), s.mean2.data(), s.rstd2.data(),
                               ModulationPart(s.modulation, 4, d, index), act.dnormed.data(), dx.data(),
                               GradientPart(dmodulation, 3, d, index, base_wanted),
                               GradientPart(dmodulation, 4, d, index, base_wanted));
    act.sums.GatedResidual(act.shards, stream, d, ModulationPart(s.modulation, 2, d, index), s.attention_out.data(),
                           dx.data(), act.dbranch.data(), GradientPart(dmodulation, 2, d, index, base_wanted));
    linear(layers.out, s.attention, act.dbranch, dattention.data(), stream);
  };
  after_attention(layout.image, block.image, act.dimage, act.dmodulation_image, act.dattention_image, Stream::kImage);
  if (text_used) {
    after_attention(layout.text, block.text, act.dtext, act.dmodulation_text, act.dattention_text, Stream::kText);
  }

  AttentionGradient(block_index, input);
  if (base_wanted) act.sums.CollectHeads(act.shards, d, act.dq.data(), act.dk.data());

  // q/k/v projection and LN1.
  const ActivationBuffer& dq = alone ? act.dq : act.own_q;
  const ActivationBuffer& dk = alone ? act.dk : act.own_k;
  const ActivationBuffer& dv = alone ? act.dv : act.own_v;
  const auto before_attention = [&](const StreamLayout& layers, StreamActivations& s, Buffer& dx, Buffer& dmodulation,
                                    Stream stream, const Buffer& cos, const Buffer& sin) {
    float* dnorm_q = base_wanted ? memory.vectors_gradient + layers.norm_q : nullptr;
    float* dnorm_k = base_wanted ? memory.vectors_gradient + layers.norm_k : nullptr;
    act.sums.QkRope(
        act.shards, stream,
        {text, image, stream == Stream::kImage, act.shards.first_token(stream).data(), heads, head, kNormEps},
        s.qkv.data(), memory.vectors + layers.norm_q, memory.vectors + layers.norm_k, cos.data(), sin.data(), dq.data(),
        dk.data(), dv.data(), act.dqkv.data(), dnorm_q, dnorm_k);
    linear(layers.qkv, s.normed1, act.dqkv, act.dnormed.data(), stream);
    act.sums.LayerNormModulate(act.shards, stream, d, s.input.data(), s.mean1.data(), s.rstd1.data(),
                               ModulationPart(s.modulation, 1, d, index), act.dnormed.data(), dx.data(),
                               GradientPart(dmodulation, 0, d, index, base_wanted),
                               GradientPart(dmodulation, 1, d, index, base_wanted));
  };
  before_attention(layout.image, block.image, act.dimage, act.dmodulation_image, Stream::kImage, act.rope.image_cos,
                   act.rope.image_sin);
  before_attention(layout.text, block.text, act.dtext, act.dmodulation_text, Stream::kText, act.rope.text_cos,
                   act.rope.text_sin);
  parameters.GradientDone(layout_->block_part(block_index));

  if (parameters.modulation != nullptr) return;
  if (base_wanted) {
    const PartMemory modulation = parameters.Use(layout_->modulation_part(block_index));
    for (auto [stream, gradient] :
         {std::pair(&layout.image, &act.dmodulation_image), std::pair(&layout.text, &act.dmodulation_text)}) {
      if (act.shards.index() > 0) break;  // rank 0 has the sums over tokens, the others zeros
      act.linear.Backward(stream->modulation, modulation, 0, levels, act.time.temb_act.data(), gradient->data(),
                          act.dtemb_part.data());
      Axpy(levels * d, 1.0f, act.dtemb_part.data(), act.dtemb_act.data());
    }
  }
  parameters.GradientDone(layout_->modulation_part(block_index));
}

// From the gradient of the attention of own tokens to that of their q, k and v, by way of own heads.
void Dit::AttentionGradient(int block_index, const DitInput& input) {
  using Kind = TokenShards::Transfer::Kind;
  const Index d = layout_->config().width(), head = layout_->config().attention_head_dim;
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  const Index ranks = act.shards.ranks(), own_width = d / ranks;
  const TokenRows text = act.shards.all_rows(Stream::kText), image = act.shards.all_rows(Stream::kImage);
  const bool text_used = TextBranchUsed(block_index);
  const AttentionShape shape{text, image, own_width / head, head};
  for (ActivationBuffer* buffer : {&act.dq, &act.dk, &act.dv}) {
    buffer->Resize(act.type, (text.rows() + image.rows()) * own_width);
  }
  if (ranks == 1) {
    AttentionBackward(shape, block.q.data(), block.k.data(), block.v.data(), input.text_mask,
                      block.text.attention.data(), block.image.attention.data(), block.lse.data(),
                      text_used ? act.dattention_text.data() : Activations(), act.dattention_image.data(),
                      act.dq.data(), act.dk.data(), act.dv.data());
    return;
  }
  act.dattention_image_heads.Resize(act.type, image.rows() * own_width);
  act.dattention_text_heads.Resize(act.type, text.rows() * own_width);
  std::vector<TokenShards::Transfer> to_heads{
      {Kind::kFeatures, Stream::kImage, d, 0, act.dattention_image.data(), act.dattention_image_heads.data()}};
  if (text_used) {
    to_heads.push_back(
        {Kind::kFeatures, Stream::kText, d, 0, act.dattention_text.data(), act.dattention_text_heads.data()});
  }
  act.shards.Exchange(to_heads);
  AttentionBackward(shape, block.q.data(), block.k.data(), block.v.data(), input.text_mask,
                    block.text.attention_heads.data(), block.image.attention_heads.data(), block.lse.data(),
                    text_used ? act.dattention_text_heads.data() : Activations(), act.dattention_image_heads.data(),
                    act.dq.data(), act.dk.data(), act.dv.data());
  for (ActivationBuffer* buffer : {&act.own_q, &act.own_k, &act.own_v}) {
    buffer->Resize(act.type, (act.shards.rows(Stream::kText).rows() + act.shards.rows(Stream::kImage).rows()) * d);
  }
  act.shards.ExchangeBack({{.kind = Kind::kHeads, .width = d, .from = act.dq.data(), .to = act.own_q.data()},
                           {.kind = Kind::kHeads, .width = d, .from = act.dk.data(), .to = act.own_k.data()},
                           {.kind = Kind::kHeads, .width = d, .from = act.dv.data(), .to = act.own_v.data()}},
                          head);
}

void Dit::BackwardEmbedding(Parameters& parameters, const DitInput& input, const InputGradients& input_gradients) {
  const TransformerConfig& config = layout_->config();
  const Index d = config.width(), levels = static_cast<Index>(input.levels.size());
  DitActivations& act = *activations_;
  const Index rows = act.shards.rows(Stream::kImage).rows(), text_rows = act.shards.rows(Stream::kText).rows();
  const PartMemory stem = parameters.Use(DitLayout::kStem);
  const bool base_wanted = stem.trains_base();
  if (base_wanted || input_gradients.image != nullptr) {
    act.linear.Backward(layout_->image_in, stem, 0, rows, input.image, act.dimage.data(), input_gradients.image,
                        &act.shards, Stream::kImage);
  }
  if (base_wanted || input_gradients.text != nullptr) {
    SPOTLIGHT_REQUIRE(input.text != nullptr || text_rows == 0, "gradients of a projected text");
    ActivationBuffer dtext_normed;
    dtext_normed.Resize(act.type, text_rows * config.joint_attention_dim);
    act.linear.Backward(layout_->text_in, stem, 0, text_rows, act.text_normed.data(), act.dtext.data(),
                        dtext_normed.data(), &act.shards, Stream::kText);
    act.sums.RmsNorm(act.shards, Stream::kText, config.joint_attention_dim, input.text,
                     stem.vectors + layout_->text_norm, act.text_rstd.data(), dtext_normed.data(), input_gradients.text,
                     base_wanted ? stem.vectors_gradient + layout_->text_norm : nullptr);
  }
  parameters.GradientDone(DitLayout::kStem);
  if (parameters.modulation != nullptr) return;
  if (base_wanted) {
    const PartMemory time = parameters.Use(layout_->time_part());
    TimeEmbedding& embedding = act.time;
    act.linear.Backward(layout_->norm_out, time, 0, levels, embedding.temb_act.data(), act.dfinal_modulation.data(),
                        act.dtemb_part.data());
    Axpy(levels * d, 1.0f, act.dtemb_part.data(), act.dtemb_act.data());
    Buffer dtemb(levels * d), dtime_act(levels * d), dtime_hidden(levels * d);
    dtemb.Zero();
    dtime_hidden.Zero();
    SiluBackward(levels * d, embedding.temb.data(), act.dtemb_act.data(), dtemb.data());
    act.linear.Backward(layout_->time_out, time, 0, levels, embedding.time_act.data(), dtemb.data(), dtime_act.data());
    SiluBackward(levels * d, embedding.time_hidden.data(), dtime_act.data(), dtime_hidden.data());
    act.linear.Backward(layout_->time_in, time, 0, levels, embedding.sinusoid.data(), dtime_hidden.data(), nullptr);
  }
  parameters.GradientDone(layout_->time_part());
}

}  // namespace spotlight
