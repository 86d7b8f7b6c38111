// GuidedVelocity::KeepSamples: Backward of some samples of a batch gives the bits of a batch of those samples alone.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/random.hpp"
#include "model/guided_velocity.hpp"
#include "model/weight_storage.hpp"
#include "tests/model/tested_activations.hpp"

namespace spotlight {
namespace {

constexpr ImageShape kShape{1, 2, 2};

std::vector<float> Normals(std::uint64_t stream, Index size, float scale) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(stream, 0, values);
  for (float& value : values) value *= scale;
  return values;
}

std::shared_ptr<const DitLayout> SmallLayout() {
  TransformerConfig config;
  config.num_layers = 2;
  config.num_attention_heads = 2;
  config.attention_head_dim = 24;
  config.axes_dims_rope = {4, 10, 10};
  config.joint_attention_dim = 32;
  return std::make_shared<const DitLayout>(config, LoraSettings{});
}

Buffer Upload(const std::vector<float>& host) {
  Buffer buffer(static_cast<Index>(host.size()));
  buffer.CopyFromHost(host);
  return buffer;
}

class KeptSamples : public testing::TestWithParam<std::tuple<double, bool>> {
 protected:
  // The parameter gradient of a batch of the named samples, of which `kept` (places in the batch) go through Backward.
  std::vector<float> Gradient(const std::vector<Index>& samples, const std::vector<Index>& kept) {
    const auto [guidance, recompute] = GetParam();
    const TextCondition negative{2, Normals(90, 2 * 32, 1)};
    GuidedVelocity velocity(layout_, guidance, negative, recompute, tested_activations);
    const Index row = kShape.tokens() * layout_->config().in_channels, batch = static_cast<Index>(samples.size());
    std::vector<float> x, dv;
    std::vector<TextCondition> conditions;
    for (const Index sample : samples) {
      const std::uint64_t stream = static_cast<std::uint64_t>(sample);
      const std::vector<float> latent = Normals(10 + stream, row, 1), cotangent = Normals(20 + stream, row, 1);
      x.insert(x.end(), latent.begin(), latent.end());
      dv.insert(dv.end(), cotangent.begin(), cotangent.end());
      const Index tokens = 2 + sample % 3;  // texts of different length in one batch
      conditions.push_back({tokens, Normals(30 + stream, tokens * 32, 1)});
    }
    Buffer latents = Upload(x), dvelocity = Upload(dv), v(batch * row), gradient(layout_->base().size());
    VelocityInput input{.image_shape = kShape, .latents = latents.data(), .levels = {0.2f, 0.7f}};
    std::vector<const TextCondition*> texts;
    for (std::size_t b = 0; b < samples.size(); ++b) {
      texts.push_back(&conditions[b]);
      input.level_index.push_back(static_cast<int>(samples[b] % 2));
    }
    gradient.Zero();
    const Buffer weights = Upload(Normals(1, layout_->base().size(), 0.1f));
    FlatParameters memory(*layout_, weights.data(), gradient.data());
    velocity.SetTexts(memory, texts, false);
    velocity.Forward(memory, input, true, v.data());
    if (kept.size() < samples.size()) velocity.KeepSamples(kept);
    const TokenRowTable rows(std::vector<Index>(samples.size(), 1));
    KeepRows(dvelocity.data(), rows.view(), row, kept);
    KeepRows(latents.data(), rows.view(), row, kept);
    velocity.Backward(memory, dvelocity.data());
    std::vector<float> host(static_cast<std::size_t>(gradient.size()));
    gradient.CopyToHost(host);
    return host;
  }

  std::shared_ptr<const DitLayout> layout_ = SmallLayout();
};

TEST_P(KeptSamples, GiveTheGradientOfABatchOfTheirOwn) {
  const std::vector<float> some = Gradient({3, 1, 4, 0, 5}, {0, 2, 4});
  EXPECT_EQ(some, Gradient({3, 4, 5}, {0, 1, 2}));
  EXPECT_NE(some, Gradient({3, 1, 4}, {0, 1, 2}));
}

INSTANTIATE_TEST_SUITE_P(Guidance, KeptSamples, testing::Combine(testing::Values(1.0, 4.0), testing::Bool()));

}  // namespace
}  // namespace spotlight
