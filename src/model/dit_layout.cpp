// The parameter layout of the transformer: checkpoint names in an order that makes the projections
// which read the same input (q, k, v) neighbours, so that they run as one matrix product.
#include <algorithm>

#include "model/dit.hpp"

namespace spotlight {
namespace {

constexpr Index kSinusoid = 256;

bool IsTarget(const std::string& name, const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return name == target || name.ends_with("." + target); });
}

}  // namespace

DitLayout::DitLayout(const TransformerConfig& config, const LoraSettings& lora) : config_(config), lora_(lora) {
  const Index d = config.width();
  time_in = AddLinear("time_text_embed.timestep_embedder.linear_1", kSinusoid, d);
  time_out = AddLinear("time_text_embed.timestep_embedder.linear_2", d, d);
  text_norm = base_.Add("txt_norm.weight", {config.joint_attention_dim});
  image_in = AddLinear("img_in", config.in_channels, d);
  text_in = AddLinear("txt_in", config.joint_attention_dim, d);
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string prefix = "transformer_blocks." + std::to_string(i) + ".";
    BlockLayout block;
    block.image = AddStream(prefix, true);
    block.text = AddStream(prefix, false);
    blocks.push_back(block);
  }
  norm_out = AddLinear("norm_out.linear", d, 2 * d);
  proj_out = AddLinear("proj_out", d, Index{1} * config.patch_size * config.patch_size * config.out_channels);
}

AdaptedLinear DitLayout::AddLinear(const std::string& name, Index in, Index out) {
  AdaptedLinear layer{.in = in, .out = out};
  layer.weight = base_.Add(name + ".weight", {out, in});
  layer.bias = base_.Add(name + ".bias", {out});
  return layer;
}

AdaptedLinear DitLayout::AddBlockLinear(const std::string& prefix, const std::vector<std::string>& names, Index in,
                                        Index out) {
  AdaptedLinear layer{.in = in, .out = out * static_cast<Index>(names.size())};
  for (const std::string& name : names) {
    const Index offset = base_.Add(prefix + name + ".weight", {out, in});
    if (name == names.front()) layer.weight = offset;
  }
  for (const std::string& name : names) {
    const Index offset = base_.Add(prefix + name + ".bias", {out});
    if (name == names.front()) layer.bias = offset;
  }
  if (lora_.rank == 0) return layer;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!IsTarget(prefix + names[i], lora_.targets)) continue;
    AdapterSlice slice{.first = static_cast<Index>(i) * out, .out = out};
    slice.a = adapter_.Add(prefix + names[i] + ".lora_A.weight", {lora_.rank, in});
    slice.b = adapter_.Add(prefix + names[i] + ".lora_B.weight", {out, lora_.rank});
    layer.adapters.push_back(slice);
  }
  return layer;
}

StreamLayout DitLayout::AddStream(const std::string& prefix, bool image) {
  const Index d = config_.width();
  StreamLayout stream;
  stream.modulation = AddLinear(prefix + (image ? "img_mod.1" : "txt_mod.1"), d, 6 * d);
  using Names = std::vector<std::string>;
  stream.qkv = AddBlockLinear(prefix,
                              image ? Names{"attn.to_q", "attn.to_k", "attn.to_v"}
                                    : Names{"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"},
                              d, d);
  stream.norm_q =
      base_.Add(prefix + (image ? "attn.norm_q.weight" : "attn.norm_added_q.weight"), {config_.attention_head_dim});
  stream.norm_k =
      base_.Add(prefix + (image ? "attn.norm_k.weight" : "attn.norm_added_k.weight"), {config_.attention_head_dim});
  stream.out = AddBlockLinear(prefix, {image ? "attn.to_out.0" : "attn.to_add_out"}, d, d);
  const std::string mlp = image ? "img_mlp" : "txt_mlp";
  stream.mlp_up = AddBlockLinear(prefix, {mlp + ".net.0.proj"}, d, 4 * d);
  stream.mlp_down = AddBlockLinear(prefix, {mlp + ".net.2"}, 4 * d, d);
  return stream;
}

}  // namespace spotlight
