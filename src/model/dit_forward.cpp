// Forward pass of the transformer; see model/dit.hpp for letters and source.
#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "kernels/activation.hpp"
#include "kernels/norm.hpp"
#include "kernels/qk_rope.hpp"
#include "kernels/step_cache.hpp"
#include "model/dit.hpp"
#include "model/dit_activations.hpp"

namespace spotlight {
namespace {

void Upload(const std::vector<float>& host, Buffer& buffer) {
  buffer.Resize(static_cast<Index>(host.size()));
  buffer.CopyFromHost(host);
}

void UpdateRope(const TransformerConfig& config, const DitInput& input, RopeBuffers& rope) {
  const Index text_tokens = *std::max_element(input.text_tokens.begin(), input.text_tokens.end());
  if (rope.text_tokens == text_tokens && rope.images == input.images) return;
  const RopeTable image = ImageRope(config.axes_dims_rope, input.images);
  const RopeTable text = TextRope(config.axes_dims_rope, input.images, text_tokens);
  Upload(image.cos, rope.image_cos);
  Upload(image.sin, rope.image_sin);
  Upload(text.cos, rope.text_cos);
  Upload(text.sin, rope.text_sin);
  rope.images = input.images;
  rope.text_tokens = text_tokens;
}

}  // namespace

Index DitInput::image_tokens() const {
  Index tokens = 0;
  for (const ImageShape& image : images) tokens += image.tokens();
  return tokens;
}

Dit::Dit(std::shared_ptr<const DitLayout> layout, ElementType activations)
    : layout_(std::move(layout)), activations_(std::make_unique<DitActivations>(activations)) {}
Dit::~Dit() = default;
Dit::Dit(Dit&&) noexcept = default;

bool Dit::TextBranchUsed(int block) const {
  return block + 1 < layout_->config().num_layers || activations_->options.last_text_branch;
}

void Dit::ProjectText(Parameters& parameters, Index rows, const float* text, float* projected) {
  const Index width = layout_->config().joint_attention_dim;
  DitActivations& act = *activations_;
  const PartMemory stem = parameters.Use(DitLayout::kStem);
  act.text_normed.Resize(act.type, rows * width);
  act.text_rstd.Resize(rows);
  RmsNormForward(rows, width, kNormEps, text, stem.vectors + layout_->text_norm, act.text_normed.data(),
                 act.text_rstd.data());
  act.linear.Forward(layout_->text_in, stem, 0, rows, act.text_normed.data(), projected);  // [rows, d]
}

void Dit::Forward(Parameters& parameters, const DitInput& input, const DitOptions& options, float* velocity) {
  const Index d = layout_->config().width();
  SPOTLIGHT_REQUIRE(static_cast<Index>(input.level_index.size()) == input.batch() && input.batch() > 0,
                    "one noise level index a sample");
  DitActivations& act = *activations_;
  act.options = options;
  act.shards.Assign(input.group, input.text_tokens, std::vector<Index>(input.text_tokens.size(), input.image_tokens()));
  act.blocks.resize(options.keep && !options.recompute ? static_cast<std::size_t>(layout_->config().num_layers) : 1);
  EmbedLevels(parameters, input);
  EmbedImage(parameters, input);
  if (input.reuse.cache == nullptr) {
    EmbedText(parameters, input);
    ForwardBlocks(parameters, input);
  } else {
    SPOTLIGHT_REQUIRE(!options.keep && input.text_mask == nullptr, "what is reused has no gradient, and no mask");
    ForwardReusing(parameters, input);
  }
  const TokenRows images = act.shards.rows(Stream::kImage);
  const Index rows = images.rows();
  for (Buffer* buffer : {&act.final_mean, &act.final_rstd}) buffer->Resize(rows);
  act.normed_out.Resize(act.type, rows * d);
  // Here the scale comes first, unlike in the blocks.
  LayerNormModulateForward(images, d, kNormEps, act.image.data(),
                           {act.final_modulation + d, 2 * d, act.level_index.data()},
                           {act.final_modulation, 2 * d, act.level_index.data()}, act.normed_out.data(),
                           act.final_mean.data(), act.final_rstd.data());
  act.linear.Forward(layout_->proj_out, parameters.Use(DitLayout::kStem), 0, rows, act.normed_out.data(), velocity);
}

void Dit::EmbedLevels(Parameters& parameters, const DitInput& input) {
  const Index d = layout_->config().width(), levels = static_cast<Index>(input.levels.size());
  DitActivations& act = *activations_;
  UpdateRope(layout_->config(), input, act.rope);
  act.level_index = input.level_index;
  if (parameters.modulation != nullptr) {
    act.pass_modulation.Gather(*layout_, *parameters.modulation, input.levels);
    act.final_modulation = act.pass_modulation.Final();
    return;
  }
  const PartMemory time = parameters.Use(layout_->time_part());
  act.time.Forward(*layout_, time, input.levels, act.linear);
  act.final_modulation_values.Resize(levels * 2 * d);
  act.linear.Forward(layout_->norm_out, time, 0, levels, act.time.temb_act.data(), act.final_modulation_values.data());
  act.final_modulation = act.final_modulation_values.data();
}

void Dit::EmbedImage(Parameters& parameters, const DitInput& input) {
  DitActivations& act = *activations_;
  const Index rows = act.shards.rows(Stream::kImage).rows();
  act.image.Resize(rows * layout_->config().width());
  act.linear.Forward(layout_->image_in, parameters.Use(DitLayout::kStem), 0, rows, input.image, act.image.data());
}

void Dit::EmbedText(Parameters& parameters, const DitInput& input) {
  DitActivations& act = *activations_;
  const Index rows = act.shards.rows(Stream::kText).rows(), d = layout_->config().width();
  act.text.Resize(rows * d);
  if (input.projected_text != nullptr) {
    CopyFloats(input.projected_text, act.text.data(), rows * d);
  } else {
    ProjectText(parameters, rows, input.text, act.text.data());
  }
}

void Dit::ForwardBlocks(Parameters& parameters, const DitInput& input) {
  DitActivations& act = *activations_;
  const bool inputs_kept = act.options.keep && act.options.recompute;
  const auto layers = static_cast<std::size_t>(layout_->config().num_layers);
  if (!act.options.keep) return RunBlocks(0, parameters, input);
  if (inputs_kept) {
    act.image_inputs.resize(layers);
    act.text_inputs.resize(layers);
  }
  for (std::size_t i = 0; i < layers; ++i) {
    for (auto [stream, inputs] : {std::pair(&act.image, &act.image_inputs), std::pair(&act.text, &act.text_inputs)}) {
      if (!inputs_kept) continue;
      (*inputs)[i].Resize(stream->size());
      CopyFloats(stream->data(), (*inputs)[i].data(), stream->size());
    }
    ForwardBlock(static_cast<int>(i), parameters, input);
  }
}

// Blocks from `first` on, whose numbers nobody keeps. Of one rank alone, with weights that stay where they are, the
// launches are recorded: hundreds of them in each denoising step, and nothing of the step's own among their arguments.
void Dit::RunBlocks(int first, Parameters& parameters, const DitInput& input) {
  const auto run = [&] {
    for (int i = first; i < layout_->config().num_layers; ++i) ForwardBlock(i, parameters, input);
  };
  if (activations_->shards.ranks() > 1 || !parameters.InPlace()) return run();
  activations_->recordings.Run(RecordingKey(first, parameters, input), run);
}

// Shapes and options, and addresses: of the weights, and of memory that changes its place from step to step.
std::vector<std::int64_t> Dit::RecordingKey(int first, Parameters& parameters, const DitInput& input) const {
  const DitActivations& act = *activations_;
  const auto address = [](const void* memory) {
    return static_cast<std::int64_t>(std::bit_cast<std::intptr_t>(memory));
  };
  std::vector<std::int64_t> key{first,
                                act.options.last_text_branch,
                                input.batch(),
                                static_cast<std::int64_t>(input.levels.size()),
                                std::bit_cast<std::int32_t>(parameters.lora_scale),
                                address(parameters.modulation),
                                address(act.image.data()),
                                address(act.text.data()),
                                address(input.text_mask)};
  key.insert(key.end(), input.text_tokens.begin(), input.text_tokens.end());
  key.insert(key.end(), act.level_index.begin(), act.level_index.end());
  for (const ImageShape& image : input.images) key.insert(key.end(), {image.frames, image.height, image.width});
  for (int i = first; i < layout_->config().num_layers; ++i) {
    for (const int part : {layout_->block_part(i), layout_->modulation_part(i)}) {
      if (part != layout_->block_part(i) && parameters.modulation != nullptr) continue;
      const PartMemory memory = parameters.Use(part);
      for (const void* place :
           {static_cast<const void*>(memory.vectors), static_cast<const void*>(memory.matrices.fp32),
            static_cast<const void*>(memory.matrices.bf16), static_cast<const void*>(memory.adapter)}) {
        key.push_back(address(place));
      }
    }
  }
  return key;
}

// From the embedded image to the stream after all blocks, of which only some are computed (model/step_cache.hpp).
void Dit::ForwardReusing(Parameters& parameters, const DitInput& input) {
  using Gate = StepCache::Gate;
  StepCache& cache = *input.reuse.cache;
  DitActivations& act = *activations_;
  const Index d = layout_->config().width(), size = act.image.size();
  int first = 0;  // of the blocks that a sample may do without
  if (cache.gate() == Gate::kInput) {
    const TokenRows rows = act.shards.rows(Stream::kImage);
    for (Buffer* buffer : {&act.final_mean, &act.final_rstd}) buffer->Resize(rows.rows());
    BlockModulation(0, parameters, static_cast<Index>(input.levels.size()));
    const float* modulation = act.block(0).image.modulation;
    LayerNormModulateForward(rows, d, kNormEps, act.image.data(), ModulationPart(modulation, 0, d, act.level_index),
                             ModulationPart(modulation, 1, d, act.level_index), cache.Indicator(size),
                             act.final_mean.data(), act.final_rstd.data());
  } else if (cache.gate() == Gate::kFirstBlock) {
    float* indicator = cache.Indicator(size);
    CopyFloats(act.image.data(), indicator, size);
    EmbedText(parameters, input);
    ForwardBlock(first++, parameters, input);
    Subtract(size, act.image.data(), indicator, indicator);
  }
  const std::vector<Index> computed = cache.Choose(act.shards, d, input.reuse.compute);
  cache.Before(computed, act.image);
  if (!computed.empty()) {
    if (first == 0) EmbedText(parameters, input);
    const std::vector<int> level_index = act.level_index;
    const bool some = static_cast<Index>(computed.size()) < input.batch();
    if (!some) {
      RunBlocks(first, parameters, input);
    } else {
      Narrow(input, computed);
      for (int i = first; i < layout_->config().num_layers; ++i) ForwardBlock(i, parameters, input);
      act.level_index = level_index;
      act.shards.Assign(input.group, input.text_tokens,
                        std::vector<Index>(input.text_tokens.size(), input.image_tokens()));
    }
  }
  cache.After(act.shards.rows(Stream::kImage), d, computed, act.image);
}

// The running streams of `samples` alone, in ascending order.
void Dit::Narrow(const DitInput& input, const std::vector<Index>& samples) {
  DitActivations& act = *activations_;
  const TokenRows text = act.shards.rows(Stream::kText), image = act.shards.rows(Stream::kImage);
  const Index d = layout_->config().width();
  if (text.rows() > 0) KeepRows(act.text.data(), text, d, samples);
  if (image.rows() > 0) KeepRows(act.image.data(), image, d, samples);
  std::vector<Index> text_tokens;
  std::vector<int> level_index;
  for (const Index sample : samples) {
    text_tokens.push_back(input.text_tokens[static_cast<std::size_t>(sample)]);
    level_index.push_back(act.level_index[static_cast<std::size_t>(sample)]);
  }
  act.level_index = level_index;
  act.shards.Assign(input.group, text_tokens, std::vector<Index>(samples.size(), input.image_tokens()));
}

void Dit::BlockModulation(int block_index, Parameters& parameters, Index levels) {
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  if (parameters.modulation != nullptr) {
    block.text.modulation = act.pass_modulation.Block(block_index, Stream::kText);
    block.image.modulation = act.pass_modulation.Block(block_index, Stream::kImage);
    return;
  }
  const BlockLayout& layout = layout_->blocks[static_cast<std::size_t>(block_index)];
  const PartMemory memory = parameters.Use(layout_->modulation_part(block_index));
  for (auto [stream, s] : {std::pair(&layout.text, &block.text), std::pair(&layout.image, &block.image)}) {
    s->modulation_values.Resize(levels * 6 * layout_->config().width());
    act.linear.Forward(stream->modulation, memory, 0, levels, act.time.temb_act.data(), s->modulation_values.data());
    s->modulation = s->modulation_values.data();
  }
}

void Dit::ForwardBlock(int block_index, Parameters& parameters, const DitInput& input) {
  const TransformerConfig& config = layout_->config();
  const BlockLayout& layout = layout_->blocks[static_cast<std::size_t>(block_index)];
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  const Index d = config.width(), heads = config.num_attention_heads, head = config.attention_head_dim;
  const TokenRows text = act.shards.rows(Stream::kText), image = act.shards.rows(Stream::kImage);
  const bool text_used = TextBranchUsed(block_index), alone = act.shards.ranks() == 1;

  BlockModulation(block_index, parameters, static_cast<Index>(input.levels.size()));
  const PartMemory memory = parameters.Use(layout_->block_part(block_index));
  const float lora_scale = parameters.lora_scale;
  const auto linear = [&](const AdaptedLinear& layer, Index rows, const ActivationBuffer& x, ActivationBuffer& y) {
    act.linear.Forward(layer, memory, lora_scale, rows, x.data(), y.data());
  };

  // LN1, modulation, q/k/v with norm and rope into attention layout.
  ActivationBuffer& q = alone ? block.q : act.own_q;
  ActivationBuffer& k = alone ? block.k : act.own_k;
  ActivationBuffer& v = alone ? block.v : act.own_v;
  for (ActivationBuffer* buffer : {&q, &k, &v}) buffer->Resize(act.type, (text.rows() + image.rows()) * d);
  const auto before_attention = [&](const StreamLayout& stream, StreamActivations& s, Buffer& x, Stream which,
                                    const Buffer& cos, const Buffer& sin) {
    const TokenRows tokens = which == Stream::kText ? text : image;
    const Index rows = tokens.rows();
    for (Buffer* buffer : {&s.mean1, &s.rstd1}) buffer->Resize(rows);
    s.normed1.Resize(act.type, rows * d);
    s.qkv.Resize(act.type, rows * 3 * d);
    if (act.options.keep) {
      s.input.Resize(rows * d);
      CopyFloats(x.data(), s.input.data(), rows * d);
    }
    LayerNormModulateForward(tokens, d, kNormEps, x.data(), ModulationPart(s.modulation, 0, d, act.level_index),
                             ModulationPart(s.modulation, 1, d, act.level_index), s.normed1.data(), s.mean1.data(),
                             s.rstd1.data());
    linear(stream.qkv, rows, s.normed1, s.qkv);  // [X, 3d]
    QkRopeForward({text, image, which == Stream::kImage, act.shards.first_token(which).data(), heads, head, kNormEps},
                  s.qkv.data(), memory.vectors + stream.norm_q, memory.vectors + stream.norm_k, cos.data(), sin.data(),
                  q.data(), k.data(), v.data());
  };
  before_attention(layout.text, block.text, act.text, Stream::kText, act.rope.text_cos, act.rope.text_sin);
  before_attention(layout.image, block.image, act.image, Stream::kImage, act.rope.image_cos, act.rope.image_sin);

  Attention(block_index, input);

  // Output projection and gate, then LN2, modulation, MLP and gate.
  const auto after_attention = [&](const StreamLayout& stream, StreamActivations& s, Buffer& x,
                                   const TokenRows& tokens) {
    const Index rows = tokens.rows();
    for (ActivationBuffer* buffer : {&s.attention_out, &s.normed2, &s.mlp_out}) buffer->Resize(act.type, rows * d);
    for (Buffer* buffer : {&s.mean2, &s.rstd2}) buffer->Resize(rows);
    for (ActivationBuffer* buffer : {&s.mlp_hidden, &s.mlp_act}) buffer->Resize(act.type, rows * 4 * d);
    linear(stream.out, rows, s.attention, s.attention_out);
    const auto part = [&](Index which) { return ModulationPart(s.modulation, which, d, act.level_index); };
    GatedResidualLayerNorm(tokens, d, kNormEps, part(2), s.attention_out.data(), x.data(), part(3), part(4),
                           s.normed2.data(), s.mean2.data(), s.rstd2.data());
    if (act.options.keep) {
      s.middle.Resize(rows * d);
      CopyFloats(x.data(), s.middle.data(), rows * d);
    }
    linear(stream.mlp_up, rows, s.normed2, s.mlp_hidden);  // [X, 4d]
    GeluForward(rows * 4 * d, s.mlp_hidden.data(), s.mlp_act.data());
    linear(stream.mlp_down, rows, s.mlp_act, s.mlp_out);
    GatedResidualForward(tokens, d, part(5), s.mlp_out.data(), x.data());
  };
  after_attention(layout.image, block.image, act.image, image);
  if (text_used) after_attention(layout.text, block.text, act.text, text);
}

// From q, k, v of own tokens to the attention of own tokens, by way of own heads.
void Dit::Attention(int block_index, const DitInput& input) {
  using Kind = TokenShards::Transfer::Kind;
  const Index d = layout_->config().width(), head = layout_->config().attention_head_dim;
  DitActivations& act = *activations_;
  BlockActivations& block = act.block(block_index);
  const Index ranks = act.shards.ranks(), own_width = d / ranks;
  const TokenRows text = act.shards.all_rows(Stream::kText), image = act.shards.all_rows(Stream::kImage);
  const bool text_used = TextBranchUsed(block_index);
  block.lse.Resize((text.rows() + image.rows()) * own_width / head);
  block.text.attention.Resize(act.type, act.shards.rows(Stream::kText).rows() * d);
  block.image.attention.Resize(act.type, act.shards.rows(Stream::kImage).rows() * d);
  const AttentionShape shape{text, image, own_width / head, head};
  if (ranks == 1) {
    AttentionForward(shape, block.q.data(), block.k.data(), block.v.data(), input.text_mask,
                     text_used ? block.text.attention.data() : Activations(), block.image.attention.data(),
                     block.lse.data());
    return;
  }
  for (ActivationBuffer* buffer : {&block.q, &block.k, &block.v}) {
    buffer->Resize(act.type, (text.rows() + image.rows()) * own_width);
  }
  act.shards.Exchange({{.kind = Kind::kHeads, .width = d, .from = act.own_q.data(), .to = block.q.data()},
                       {.kind = Kind::kHeads, .width = d, .from = act.own_k.data(), .to = block.k.data()},
                       {.kind = Kind::kHeads, .width = d, .from = act.own_v.data(), .to = block.v.data()}},
                      head);
  block.text.attention_heads.Resize(act.type, text.rows() * own_width);
  block.image.attention_heads.Resize(act.type, image.rows() * own_width);
  AttentionForward(shape, block.q.data(), block.k.data(), block.v.data(), input.text_mask,
                   text_used ? block.text.attention_heads.data() : Activations(), block.image.attention_heads.data(),
                   block.lse.data());
  std::vector<TokenShards::Transfer> back{
      {Kind::kFeatures, Stream::kImage, d, 0, block.image.attention_heads.data(), block.image.attention.data()}};
  if (text_used) {
    back.push_back(
        {Kind::kFeatures, Stream::kText, d, 0, block.text.attention_heads.data(), block.text.attention.data()});
  }
  act.shards.ExchangeBack(back);
}

}  // namespace spotlight
