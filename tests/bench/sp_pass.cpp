#include "tests/bench/sp_pass.hpp"

#include <vector>

#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr Index kTextWidth = 64;
constexpr int kLoraRank = 16;

// The same numbers again and again, because three hundred million new ones take longer than the passes.
Buffer Normals(std::uint64_t stream, Index size, float scale) {
  std::vector<float> some(1'000'003), host(static_cast<std::size_t>(size));
  FillNormal(stream, 0, some);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = scale * some[i % some.size()];
  Buffer buffer(size);
  buffer.CopyFromHost(host);
  return buffer;
}

std::shared_ptr<const DitLayout> OneBlock() {
  TransformerConfig config;
  config.num_layers = 1;
  config.joint_attention_dim = kTextWidth;
  return std::make_shared<const DitLayout>(
      config, LoraSettings{kLoraRank,
                           2 * kLoraRank,
                           {"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out",
                            "img_mlp.net.0.proj", "img_mlp.net.2", "txt_mlp.net.0.proj", "txt_mlp.net.2"}});
}

std::string Bytes(const Buffer& buffer) {
  std::vector<float> host(static_cast<std::size_t>(buffer.size()));
  buffer.CopyToHost(host);
  return {reinterpret_cast<const char*>(host.data()), host.size() * sizeof(float)};
}

}  // namespace

SpPass::SpPass()
    : layout_(OneBlock()),
      weights_(Normals(1, layout_->base().size(), 0.02f)),
      adapter_(Normals(2, layout_->adapter().size(), 0.02f)),
      gradient_(layout_->adapter().size()),
      image_(Normals(3, kSide * kSide * layout_->config().in_channels, 1)),
      text_(Normals(4, kTextTokens * kTextWidth, 1)),
      dvelocity_(Normals(5, image_.size(), 1)),
      forward_(*layout_, weights_.data(), nullptr, adapter_.data()),
      both_(*layout_, weights_.data(), nullptr, adapter_.data(), gradient_.data()),
      dit_(layout_) {
  forward_.lora_scale = both_.lora_scale = static_cast<float>(layout_->lora().alpha / kLoraRank);
}

DitInput SpPass::InputOf(SequenceGroup* group) const {
  const int index = group == nullptr ? 0 : group->index(), size = group == nullptr ? 1 : group->size();
  const ShareRange image = ShareOf(kSide * kSide, index, size), text = ShareOf(kTextTokens, index, size);
  return {.text_tokens = {kTextTokens},
          .images = {{1, kSide, kSide}},
          .image = image_.data() + image.begin * layout_->config().in_channels,
          .text = text_.data() + text.begin * kTextWidth,
          .levels = {0.5f},
          .level_index = {0},
          .group = group};
}

void SpPass::Forward(SequenceGroup& group) {
  const Index rows = ShareOf(kSide * kSide, group.index(), group.size()).size();
  velocity_.Resize(rows * layout_->config().in_channels);
  dit_.Forward(forward_, InputOf(&group), {.last_text_branch = true}, velocity_.data());
}

void SpPass::ForwardBackward(SequenceGroup& group) {
  const ShareRange rows = ShareOf(kSide * kSide, group.index(), group.size());
  const Index channels = layout_->config().in_channels;
  const DitInput input = InputOf(&group);
  velocity_.Resize(rows.size() * channels);
  gradient_.Zero();
  dit_.Forward(both_, input, {.keep = true, .last_text_branch = true}, velocity_.data());
  dit_.Backward(both_, input, dvelocity_.data() + rows.begin * channels, {});
}

void SpPass::ForwardOf(Index rows, Index text) {
  DitInput input = InputOf(nullptr);
  input.text_tokens = {text};
  input.images = {{1, static_cast<int>(rows), static_cast<int>(kSide)}};
  velocity_.Resize(rows * kSide * layout_->config().in_channels);
  dit_.Forward(forward_, input, {.last_text_branch = true}, velocity_.data());
}

std::string SpPass::Velocity() const { return Bytes(velocity_); }

std::string SpPass::Gradient() const { return Bytes(gradient_); }

}  // namespace spotlight
