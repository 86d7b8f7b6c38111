// A pass shared out over P ranks has the bits of one rank alone: velocity, gradients of inputs, adapter and all
// weights, for every degree that the heads allow, tokens that do not divide, texts of different length (also shorter
// than P), masks.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/random.hpp"
#include "model/guided_velocity.hpp"
#include "model/weight_storage.hpp"
#include "tests/model/baton_group.hpp"
#include "tests/model/tested_activations.hpp"

namespace spotlight {
namespace {

constexpr Index kTextWidth = 20;

std::vector<float> Normals(std::uint64_t stream, Index size, float deviation) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(StreamKey({stream}), 0, values);
  for (float& value : values) value *= deviation;
  return values;
}

Buffer Upload(const std::vector<float>& host) {
  Buffer buffer(static_cast<Index>(host.size()));
  buffer.CopyFromHost(host);
  return buffer;
}

std::vector<float> Host(const Buffer& buffer) {
  std::vector<float> host(static_cast<std::size_t>(buffer.size()));
  buffer.CopyToHost(host);
  return host;
}

std::shared_ptr<const DitLayout> Layout(int heads, int rank) {
  TransformerConfig config;
  config.num_layers = 2;
  config.num_attention_heads = heads;
  config.attention_head_dim = 8;
  config.axes_dims_rope = {2, 2, 4};
  config.in_channels = 8;
  config.out_channels = 2;
  config.joint_attention_dim = kTextWidth;
  return std::make_shared<const DitLayout>(
      config, LoraSettings{rank,
                           2.0 * rank,
                           {"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_v_proj", "img_mlp.net.0.proj",
                            "img_mlp.net.2", "txt_mlp.net.2"}});
}

// An adapter if the layout has one, otherwise all weights.
FlatParameters Trained(const DitLayout& layout, const Buffer& base, const Buffer& adapter, Buffer& gradient) {
  if (layout.lora().rank == 0) return {layout, base.data(), gradient.data()};
  return {layout, base.data(), nullptr, adapter.data(), gradient.data()};
}

struct Result {
  std::vector<float> velocity, dimage, dtext, gradient;  // whole arrays
};

// The rows of `width` that rank `index` of `count` holds of samples of `tokens`, taken from (or put into) the whole.
template <typename Body>
void ForEachShare(const std::vector<Index>& tokens, Index width, int index, int count, const Body& body) {
  Index whole = 0, own = 0;
  for (const Index n : tokens) {
    const ShareRange share = ShareOf(n, index, count);
    body((whole + share.begin) * width, own * width, share.size() * width);
    whole += n;
    own += share.size();
  }
}

// Degree, recompute, and whether all weights are trained rather than an adapter.
class SequenceParallel : public testing::TestWithParam<std::tuple<int, bool, bool>> {
 protected:
  Result Pass(int ranks) const {
    const auto [degree, recompute, all_weights] = GetParam();
    const auto layout = Layout(24, all_weights ? 0 : 4);
    const std::vector<Index> texts{5, 1, 7}, images{35, 35, 35};  // 3 x 7 and 2 x 7 tokens
    const Index text_rows = 13, image_rows = 105, channels = 8;
    const std::vector<float> image = Normals(2, image_rows * channels, 1), text = Normals(3, text_rows * kTextWidth, 1);
    const std::vector<float> cotangent = Normals(4, image_rows * channels, 1);
    const std::vector<std::uint8_t> mask{1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0};
    const Buffer base = Upload(Normals(5, layout->base().size(), 0.2f));
    const Buffer adapter = Upload(Normals(6, layout->adapter().size(), 0.2f));
    const Index trained = all_weights ? base.size() : adapter.size();
    Result result{std::vector<float>(image.size()), std::vector<float>(image.size()), std::vector<float>(text.size()),
                  std::vector<float>(static_cast<std::size_t>(trained))};
    const auto rank = [&](SequenceGroup* group) {
      const int index = group == nullptr ? 0 : group->index();
      const auto own = [&](const std::vector<float>& whole, const std::vector<Index>& tokens, Index width) {
        std::vector<float> share;
        ForEachShare(tokens, width, index, ranks, [&](Index from, Index, Index size) {
          share.insert(share.end(), whole.begin() + from, whole.begin() + from + size);
        });
        return Upload(share);
      };
      const auto collect = [&](const Buffer& share, const std::vector<Index>& tokens, Index width,
                               std::vector<float>& whole) {
        const std::vector<float> host = Host(share);
        ForEachShare(tokens, width, index, ranks, [&](Index to, Index from, Index size) {
          std::copy_n(host.begin() + from, size, whole.begin() + to);
        });
      };
      const Buffer own_image = own(image, images, channels), own_text = own(text, texts, kTextWidth);
      const Buffer own_cotangent = own(cotangent, images, channels);
      Buffer velocity(own_image.size()), dimage(own_image.size()), dtext(own_text.size()), gradient(trained);
      gradient.Zero();
      FlatParameters parameters = Trained(*layout, base, adapter, gradient);
      const DitInput input{.text_tokens = texts,
                           .images = {{1, 3, 7}, {1, 2, 7}},
                           .image = own_image.data(),
                           .text = own_text.data(),
                           .text_mask = mask.data(),
                           .levels = {0.3f, 0.8f},
                           .level_index = {0, 1, 0},
                           .group = group};
      Dit dit(layout, tested_activations);
      dit.Forward(parameters, input, {.keep = true, .recompute = recompute}, velocity.data());
      dit.Backward(parameters, input, own_cotangent.data(), {dimage.data(), dtext.data()});
      collect(velocity, images, channels, result.velocity);
      collect(dimage, images, channels, result.dimage);
      collect(dtext, texts, kTextWidth, result.dtext);
      const std::vector<float> host = Host(gradient);
      Index shared = 0;
      for (std::size_t i = 0; i < host.size(); ++i) {
        shared += host[i] != 0 && result.gradient[i] != 0 ? 1 : 0;
        result.gradient[i] += host[i];
      }
      EXPECT_EQ(shared, 0) << "every number is one rank's, the others have zeros";
    };
    if (ranks == 1) {
      rank(nullptr);
    } else {
      Baton(ranks).Run([&](SequenceGroup& group) { rank(&group); });
    }
    return result;
  }
};

TEST_P(SequenceParallel, HasTheBitsOfOneRank) {
  const auto [degree, recompute, all_weights] = GetParam();
  static std::map<bool, Result> results;  // with and without recompute the same
  if (results.count(all_weights) == 0) results[all_weights] = Pass(1);
  const Result& alone = results[all_weights];
  const Result shared = Pass(degree);
  EXPECT_EQ(shared.velocity, alone.velocity);
  EXPECT_EQ(shared.dimage, alone.dimage);
  EXPECT_EQ(shared.dtext, alone.dtext);
  EXPECT_EQ(shared.gradient, alone.gradient);
  double sum = 0;
  for (const float value : alone.gradient) sum += std::abs(value);
  EXPECT_GT(sum, 1);
}

INSTANTIATE_TEST_SUITE_P(Degrees, SequenceParallel,
                         testing::Combine(testing::Values(2, 3, 4, 6, 8, 12, 24), testing::Bool(), testing::Bool()));

// The guided velocity, its KeepSamples and gradient, by 3 ranks and by one; and a group that changes between two steps.
class SequenceParallelGuidance : public testing::TestWithParam<int> {};

TEST_P(SequenceParallelGuidance, HasTheBitsOfOneRankWhateverTheGroupWasBefore) {
  const auto layout = Layout(6, GetParam());
  const ImageShape shape{1, 5, 4};
  const Index size = shape.tokens() * 8, batch = 3;
  const TextCondition negative{2, Normals(7, 2 * kTextWidth, 1)};
  std::vector<TextCondition> texts;
  for (const Index tokens : {4, 1, 6}) {
    texts.push_back({tokens, Normals(10 + static_cast<std::uint64_t>(tokens), tokens * kTextWidth, 1)});
  }
  const std::vector<const TextCondition*> conditions{&texts[0], &texts[1], &texts[2]};
  const Buffer base = Upload(Normals(5, layout->base().size(), 0.2f));
  const Buffer adapter = Upload(Normals(6, layout->adapter().size(), 0.2f));
  const Buffer latents = Upload(Normals(8, batch * size, 1)), cotangent = Upload(Normals(9, 2 * size, 1));
  const VelocityInput input{shape, latents.data(), {0.6f}, {0, 0, 0}};
  const bool all_weights = GetParam() == 0;
  const auto run = [&](GuidedVelocity& velocity, SequenceGroup* group) {
    Buffer v(batch * size), gradient(all_weights ? base.size() : adapter.size());
    gradient.Zero();
    FlatParameters parameters = Trained(*layout, base, adapter, gradient);
    velocity.SetTexts(parameters, conditions, !all_weights, group);  // projected texts have no gradient
    velocity.Forward(parameters, input, true, v.data());
    velocity.KeepSamples({0, 2});
    velocity.Backward(parameters, cotangent.data());
    return std::pair(Host(v), Host(gradient));
  };
  GuidedVelocity alone(layout, 4.0, negative, false, tested_activations);
  const auto [v, gradient] = run(alone, nullptr);
  std::vector<float> sum(gradient.size());
  std::vector<GuidedVelocity> members;
  members.reserve(3);
  for (int i = 0; i < 3; ++i) members.emplace_back(layout, 4.0, negative, false, tested_activations);
  for (const int ranks : {2, 3}) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    Baton(ranks).Run([&](SequenceGroup& group) {
      const auto [own_v, own_gradient] = run(members[static_cast<std::size_t>(group.index())], &group);
      EXPECT_EQ(own_v, v);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own_gradient[i];
    });
    EXPECT_EQ(sum, gradient);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, SequenceParallelGuidance, testing::Values(3, 0));

}  // namespace
}  // namespace spotlight
