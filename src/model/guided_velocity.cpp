#include "model/guided_velocity.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/guidance.hpp"

namespace spotlight {
namespace {

using Kind = TokenShards::Transfer::Kind;

// `share` receives this rank's tokens of each of `samples` samples, read `times` times in a row.
void CopyShares(const TokenShards& shards, Index samples, Index times, Index width, const float* whole, float* share) {
  const TokenRows own = shards.rows(Stream::kImage), all = shards.all_rows(Stream::kImage);
  std::vector<BlockCopy> blocks;
  for (Index b = 0; b < samples * times; ++b) {
    const std::size_t at = static_cast<std::size_t>(b);
    const Index from = all.first[b / times] + shards.first_token(Stream::kImage)[at];
    blocks.push_back({from * width, own.first[b] * width, 1, own.tokens(b) * width, 0, 0});
  }
  CopyBlocks(blocks, whole, share);
}

}  // namespace

GuidedVelocity::GuidedVelocity(const std::shared_ptr<const DitLayout>& layout, double guidance, TextCondition negative,
                               bool recompute, ElementType activations)
    : guidance_(static_cast<float>(guidance)),
      negative_(std::move(negative)),
      recompute_(recompute),
      dit_(layout, activations) {}

Index GuidedVelocity::channels() const {
  const TransformerConfig& config = layout().config();
  return Index{1} * config.patch_size * config.patch_size * config.out_channels;
}

void GuidedVelocity::SetTexts(Parameters& parameters, const std::vector<const TextCondition*>& conditions,
                              bool constant, SequenceGroup* group) {
  std::vector<const TextCondition*> texts;
  for (const TextCondition* condition : conditions) {
    texts.push_back(condition);
    if (guided()) texts.push_back(&negative_);
  }
  input_ = {.group = group};
  const Index width = layout().config().joint_attention_dim;
  std::vector<float> host;
  for (const TextCondition* text : texts) {
    SPOTLIGHT_REQUIRE(static_cast<Index>(text->embedding.size()) == text->tokens * width, "a condition's size");
    input_.text_tokens.push_back(text->tokens);
    const ShareRange share =
        group == nullptr ? ShareRange{0, text->tokens} : ShareOf(text->tokens, group->index(), group->size());
    host.insert(host.end(), text->embedding.begin() + share.begin * width, text->embedding.begin() + share.end * width);
  }
  text_.Resize(static_cast<Index>(host.size()));
  text_.CopyFromHost(host);
  input_.text = text_.data();
  if (!constant) return;
  const Index rows = text_.size() / width;
  projected_text_.Resize(rows * layout().config().width());
  dit_.ProjectText(parameters, rows, text_.data(), projected_text_.data());
  input_.projected_text = projected_text_.data();
}

void GuidedVelocity::Forward(Parameters& parameters, const VelocityInput& input, bool keep, float* velocity) {
  const Index batch = static_cast<Index>(input.level_index.size()), in_channels = layout().config().in_channels;
  SPOTLIGHT_REQUIRE(input_.batch() == batch * branches(), "one text a sample, given by SetTexts");
  input_.images = {input.image_shape};
  input_.levels = input.levels;
  input_.reuse = input.reuse;
  input_.level_index.clear();
  for (const int level : input.level_index) {
    input_.level_index.insert(input_.level_index.end(), static_cast<std::size_t>(branches()), level);
  }
  shards_.Assign(input_.group, input_.text_tokens,
                 std::vector<Index>(input_.text_tokens.size(), input_.image_tokens()));
  const Index size = input_.image_tokens() * channels(), rows = shards_.rows(Stream::kImage).rows();
  const bool alone = shards_.ranks() == 1;
  input_.image = input.latents;
  if (guided() || !alone) {
    image_.Resize(rows * in_channels);
    CopyShares(shards_, batch, branches(), in_channels, input.latents, image_.data());
    input_.image = image_.data();
  }
  const DitOptions options{.keep = keep, .recompute = keep && recompute_, .last_text_branch = false};
  if (guided()) pairs_.Resize(batch * branches() * size);
  float* result = guided() ? pairs_.data() : velocity;
  if (alone) {
    dit_.Forward(parameters, input_, options, result);
  } else {
    velocity_.Resize(rows * channels());
    dit_.Forward(parameters, input_, options, velocity_.data());
    shards_.Exchange({{Kind::kGather, Stream::kImage, channels(), 0, velocity_.data(), result}});
  }
  if (guided()) GuidanceForward(batch, size, channels(), guidance_, pairs_.data(), velocity);
}

void GuidedVelocity::KeepSamples(const std::vector<Index>& kept) {
  std::vector<Index> places;
  for (const Index sample : kept) {
    for (Index branch = 0; branch < branches(); ++branch) places.push_back(sample * branches() + branch);
  }
  dit_.KeepSamples(input_, places);
  const TokenRows text = shards_.rows(Stream::kText), image = shards_.rows(Stream::kImage);
  if (text.rows() > 0) KeepRows(text_.data(), text, layout().config().joint_attention_dim, places);
  if (input_.image == image_.data() && image.rows() > 0)
    KeepRows(image_.data(), image, layout().config().in_channels, places);
  if (guided()) KeepRows(pairs_.data(), shards_.all_rows(Stream::kImage), channels(), places);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t from = static_cast<std::size_t>(places[i]);
    input_.text_tokens[i] = input_.text_tokens[from];
    input_.level_index[i] = input_.level_index[from];
  }
  input_.text_tokens.resize(places.size());
  input_.level_index.resize(places.size());
  shards_.Assign(input_.group, input_.text_tokens, std::vector<Index>(places.size(), input_.image_tokens()));
}

void GuidedVelocity::Backward(Parameters& parameters, const float* dvelocity) {
  const Index batch = input_.batch() / branches(), size = input_.image_tokens() * channels();
  const float* gradient = dvelocity;
  if (guided()) {
    dpairs_.Resize(batch * branches() * size);
    GuidanceBackward(batch, size, channels(), guidance_, pairs_.data(), dvelocity, dpairs_.data());
    gradient = dpairs_.data();
  }
  if (shards_.ranks() > 1) {
    dvelocity_.Resize(shards_.rows(Stream::kImage).rows() * channels());
    CopyShares(shards_, input_.batch(), 1, channels(), gradient, dvelocity_.data());
    gradient = dvelocity_.data();
  }
  dit_.Backward(parameters, input_, gradient, {});
}

}  // namespace spotlight
