#include "model/dit_layout.hpp"

#include <algorithm>
#include <utility>

namespace spotlight {
namespace {

constexpr Index kSinusoid = 256;

bool IsTarget(const std::string& name, const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return name == target || name.ends_with("." + target); });
}

}  // namespace

// Collects the parameters of one part, which Finish gives their places.
class DitLayout::PartBuilder {
 public:
  PartBuilder(DitLayout& layout, Index heads) : layout_(layout), heads_(heads) {}

  // Layers that read the same input become one. LoRA targets among them get an adapter.
  AdaptedLinear Linear(const std::vector<std::string>& names, Index in, Index out, bool adaptable = false) {
    AdaptedLinear layer{.in = in, .out = out * static_cast<Index>(names.size()), .heads = heads_};
    layer.weight = Size(matrices_);
    layer.bias = Size(vectors_);
    const LoraSettings& lora = layout_.lora_;
    for (std::size_t i = 0; i < names.size(); ++i) {
      matrices_.push_back({names[i] + ".weight", {out, in}});
      vectors_.push_back({names[i] + ".bias", {out}});
      if (!adaptable || lora.rank == 0 || !IsTarget(names[i], lora.targets)) continue;
      AdapterSlice slice{.first = static_cast<Index>(i) * out, .out = out, .rank = lora.rank};
      slice.a = Size(adapter_);
      adapter_.push_back({names[i] + ".lora_A.weight", {lora.rank, in}});
      slice.b = Size(adapter_);
      adapter_.push_back({names[i] + ".lora_B.weight", {out, lora.rank}});
      layer.adapters.push_back(slice);
    }
    return layer;
  }
  AdaptedLinear Linear(const std::string& name, Index in, Index out, bool adaptable = false) {
    return Linear(std::vector<std::string>{name}, in, out, adaptable);
  }

  Index Vector(const std::string& name, Index size) {
    vectors_.push_back({name, {size}});
    return Size(vectors_) - size;
  }

  void Finish() {
    PartLayout part{.offset = layout_.base_.size(),
                    .vectors = Size(vectors_),
                    .matrices = Size(matrices_),
                    .adapter_offset = layout_.adapter_.size(),
                    .adapter = Size(adapter_),
                    .first_parameter = layout_.base_.parameters().size(),
                    .parameters = vectors_.size() + matrices_.size()};
    for (const auto& [name, shape] : vectors_) layout_.base_.Add(name, shape);
    for (const auto& [name, shape] : matrices_) layout_.base_.Add(name, shape);
    for (const auto& [name, shape] : adapter_) layout_.adapter_.Add(name, shape);
    layout_.parts_.push_back(part);
  }

 private:
  using Tensors = std::vector<std::pair<std::string, Shape>>;

  static Index Size(const Tensors& tensors) {
    Index size = 0;
    for (const auto& [name, shape] : tensors) size += NumElements(shape);
    return size;
  }

  DitLayout& layout_;
  Index heads_;
  Tensors vectors_, matrices_, adapter_;
};

DitLayout::DitLayout(const TransformerConfig& config, const LoraSettings& lora) : config_(config), lora_(lora) {
  const Index d = config.width(), heads = config.num_attention_heads;
  blocks.resize(static_cast<std::size_t>(config.num_layers));
  const auto prefix = [](std::size_t i) {
    std::string text = "transformer_blocks.";
    return text.append(std::to_string(i)).append(".");
  };
  PartBuilder stem(*this, heads);
  text_norm = stem.Vector("txt_norm.weight", config.joint_attention_dim);
  image_in = stem.Linear("img_in", config.in_channels, d);
  text_in = stem.Linear("txt_in", config.joint_attention_dim, d);
  proj_out = stem.Linear("proj_out", d, Index{1} * config.patch_size * config.patch_size * config.out_channels);
  stem.Finish();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    PartBuilder part(*this, heads);
    blocks[i].image = BlockStream(part, prefix(i), true);
    blocks[i].text = BlockStream(part, prefix(i), false);
    part.Finish();
  }
  PartBuilder time(*this, heads);
  time_in = time.Linear("time_text_embed.timestep_embedder.linear_1", kSinusoid, d);
  time_out = time.Linear("time_text_embed.timestep_embedder.linear_2", d, d);
  norm_out = time.Linear("norm_out.linear", d, 2 * d);
  time.Finish();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    PartBuilder part(*this, heads);
    blocks[i].image.modulation = part.Linear(prefix(i) + "img_mod.1", d, 6 * d);
    blocks[i].text.modulation = part.Linear(prefix(i) + "txt_mod.1", d, 6 * d);
    part.Finish();
  }
}

StreamLayout DitLayout::BlockStream(PartBuilder& part, const std::string& prefix, bool image) const {
  const Index d = config_.width(), head = config_.attention_head_dim;
  const auto name = [&](const char* of_image, const char* of_text) { return prefix + (image ? of_image : of_text); };
  StreamLayout stream;
  stream.qkv = part.Linear({name("attn.to_q", "attn.add_q_proj"), name("attn.to_k", "attn.add_k_proj"),
                            name("attn.to_v", "attn.add_v_proj")},
                           d, d, true);
  stream.norm_q = part.Vector(name("attn.norm_q.weight", "attn.norm_added_q.weight"), head);
  stream.norm_k = part.Vector(name("attn.norm_k.weight", "attn.norm_added_k.weight"), head);
  stream.out = part.Linear(name("attn.to_out.0", "attn.to_add_out"), d, d, true);
  stream.mlp_up = part.Linear(name("img_mlp.net.0.proj", "txt_mlp.net.0.proj"), d, 4 * d, true);
  stream.mlp_down = part.Linear(name("img_mlp.net.2", "txt_mlp.net.2"), 4 * d, d, true);
  return stream;
}

std::vector<int> DitLayout::backward_order() const {
  std::vector<int> order;
  for (int i = config_.num_layers - 1; i >= 0; --i) {
    order.push_back(block_part(i));
    order.push_back(modulation_part(i));
  }
  order.push_back(kStem);
  order.push_back(time_part());
  return order;
}

}  // namespace spotlight
