// Passes whose activations are bfloat16 (model/dit.hpp) beside fp32 ones of the same weights: how far velocity and
// gradients are from each other, and that the residual streams are not rounded. By the CUDA kernels on the CPU.
//
// Rounding to nearest is off by at most u = 2^-9 of a value, and by about 0.4 u in the mean square. A block rounds what
// its two branches pass on, and both operands of their products, some 14 times one after the other, and errors of
// different roundings are independent: L blocks give a relative error of 0.4 u sqrt(14 L). Less is measured, because
// most of a stream has not come through all of them (0.7 of that). A gradient meets the roundings of the forward pass
// and its own, twice as many, and not all of it is as large as what it is the difference of: a factor of 1.5 for the
// whole, 3 for that of a single parameter, where 1.2 and 2.5 are measured.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "model/dit.hpp"
#include "model/dit_activations.hpp"
#include "model/weight_storage.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"
#include "tests/model/baton_group.hpp"
#include "tests/model/golden.hpp"

namespace spotlight {
namespace {

constexpr double kUnit = 1.0 / 512, kRounding = 0.4 * kUnit;
constexpr int kRoundings = 14;  // of a block, one after the other
constexpr Index kTextWidth = 24, kChannels = 8;

double ForwardError(int blocks) { return kRounding * std::sqrt(kRoundings * blocks); }
double GradientError(int blocks) { return 1.5 * ForwardError(2 * blocks); }
double ParameterError(int blocks) { return 2 * GradientError(blocks); }

std::vector<float> Normals(std::uint64_t stream, Index size, double deviation) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(StreamKey({stream}), 0, values);
  for (float& value : values) value *= static_cast<float>(deviation);
  return values;
}

// Every layer keeps the size of what it is given; modulation numbers are `modulation` large.
std::vector<float> Weights(const ParameterLayout& layout, double modulation) {
  std::vector<float> weights;
  for (const Parameter& parameter : layout.parameters()) {
    const bool matrix = parameter.shape.size() == 2;
    const bool modulates = parameter.name.find("_mod.") != std::string::npos;
    const double deviation = matrix ? (modulates ? modulation : 1.0) / std::sqrt(parameter.shape[1]) : 0.02;
    std::vector<float> values = Normals(100 + static_cast<std::uint64_t>(parameter.offset), parameter.size, deviation);
    if (!matrix && parameter.name.find("norm") != std::string::npos && parameter.name.ends_with("weight")) {
      for (float& value : values) value += 1;
    }
    weights.insert(weights.end(), values.begin(), values.end());
  }
  return weights;
}

struct Pass {
  std::vector<float> velocity, dimage, dtext, gradient;
  std::vector<float> stream;  // of the image, after all blocks
};

class Bf16Passes : public testing::Test {
 protected:
  Bf16Passes() { UseOperations(CudaOnCpuOperations()); }
  ~Bf16Passes() override { UseOperations(before_); }

  static DitLayout Layout(int layers, int rank) {
    TransformerConfig config;
    config.num_layers = layers;
    config.num_attention_heads = 4;
    config.attention_head_dim = 16;
    config.axes_dims_rope = {4, 6, 6};
    config.in_channels = kChannels;
    config.out_channels = 2;
    config.joint_attention_dim = kTextWidth;
    return {config,
            {rank, 2.0 * rank, {"to_q", "to_k", "to_out.0", "add_v_proj", "img_mlp.net.2", "txt_mlp.net.0.proj"}}};
  }

  // Forward and backward; gradients of the adapter if there is one, else of all weights.
  static Pass Run(const DitLayout& layout, double modulation, ElementType activations) {
    const bool lora = layout.lora().rank > 0;
    const Index text_rows = 13, image_rows = 3 * 35;
    const Buffer image = Upload(Normals(1, image_rows * kChannels, 1)),
                 text = Upload(Normals(2, text_rows * kTextWidth, 1));
    const Buffer cotangent = Upload(Normals(3, image_rows * kChannels, 1));
    const Buffer base = Upload(Weights(layout.base(), modulation)), adapter = Upload(Weights(layout.adapter(), 1));
    Buffer gradient(lora ? adapter.size() : base.size()), velocity(image.size()), dimage(image.size()),
        dtext(text.size());
    gradient.Zero();
    FlatParameters parameters = lora ? FlatParameters(layout, base.data(), nullptr, adapter.data(), gradient.data())
                                     : FlatParameters(layout, base.data(), gradient.data());
    const DitInput input{.text_tokens = {5, 1, 7},
                         .images = {{1, 5, 7}},
                         .image = image.data(),
                         .text = text.data(),
                         .levels = {0.3f, 0.8f},
                         .level_index = {0, 1, 0}};
    Dit dit(std::make_shared<const DitLayout>(layout), activations);
    dit.Forward(parameters, input, {.keep = true}, velocity.data());
    Pass pass{.velocity = Host(velocity), .stream = Host(dit.activations().image)};
    dit.Backward(parameters, input, cotangent.data(), {dimage.data(), dtext.data()});
    pass.dimage = Host(dimage);
    pass.dtext = Host(dtext);
    pass.gradient = Host(gradient);
    return pass;
  }

  // Relative L2 error and cosine against fp32.
  static void ExpectGradient(const std::vector<float>& bf16, const std::vector<float>& fp32, double error,
                             const std::string& what) {
    double product = 0, square = 0, expected_square = 0;
    for (std::size_t i = 0; i < fp32.size(); ++i) {
      product += static_cast<double>(bf16[i]) * static_cast<double>(fp32[i]);
      square += static_cast<double>(bf16[i]) * static_cast<double>(bf16[i]);
      expected_square += static_cast<double>(fp32[i]) * static_cast<double>(fp32[i]);
    }
    if (expected_square == 0) {  // of the last block's text branch
      EXPECT_EQ(bf16, fp32) << what;
      return;
    }
    EXPECT_LE(Compare(bf16, fp32).rel_l2, error) << what;
    EXPECT_GE(product / std::sqrt(square * expected_square), 1 - error * error / 2) << what;
  }

  const Operations& before_ = ActiveOperations();
};

// Rank of the adapter; 0: all weights are trained.
class Bf16Gradients : public Bf16Passes, public testing::WithParamInterface<int> {};

TEST_P(Bf16Gradients, VelocityAndGradientsAreThoseOfFp32UpToRounding) {
  constexpr int kLayers = 4;
  const DitLayout layout = Layout(kLayers, GetParam());
  const Pass fp32 = Run(layout, 1, ElementType::kFp32), bf16 = Run(layout, 1, ElementType::kBf16);
  const double error = Compare(bf16.velocity, fp32.velocity).rel_l2;
  EXPECT_LE(error, ForwardError(kLayers));
  EXPECT_GE(error, kRounding) << "nothing was rounded";
  ExpectGradient(bf16.gradient, fp32.gradient, GradientError(kLayers), "of all that is trained");
  ExpectGradient(bf16.dimage, fp32.dimage, GradientError(kLayers), "image");
  ExpectGradient(bf16.dtext, fp32.dtext, GradientError(kLayers), "text");
  const ParameterLayout& trained = GetParam() > 0 ? layout.adapter() : layout.base();
  for (const Parameter& parameter : trained.parameters()) {
    const auto part = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + parameter.offset, all.begin() + parameter.offset + parameter.size);
    };
    ExpectGradient(part(bf16.gradient), part(fp32.gradient), ParameterError(kLayers), parameter.name);
  }
}

INSTANTIATE_TEST_SUITE_P(AllWeightsOrAnAdapter, Bf16Gradients, testing::Values(0, 4));

// Small gates, as those of a trained model: rounding the branches leaves the streams closer to fp32's than rounding the
// streams themselves a single time would.
TEST_F(Bf16Passes, StreamsAreNotRounded) {
  const DitLayout layout = Layout(8, 0);
  const Pass fp32 = Run(layout, 0.1, ElementType::kFp32), bf16 = Run(layout, 0.1, ElementType::kBf16);
  std::vector<float> rounded;
  for (const float value : fp32.stream) rounded.push_back(ToFloat(ToBfloat16(value)));
  EXPECT_LT(Compare(bf16.stream, fp32.stream).rel_l2, 0.3 * Compare(rounded, fp32.stream).rel_l2);
  EXPECT_NE(bf16.stream, fp32.stream);
}

// Odd numbers of bfloat16 before fp32 in one message, and an array that one rank alone receives.
TEST_F(Bf16Passes, ExchangesCarryBothTypesAtOnce) {
  using Kind = TokenShards::Transfer::Kind;
  const std::vector<Index> texts{5, 1, 7}, images{2, 0, 4};
  const std::vector<float> whole = Normals(4, 13 * 3, 1);
  std::vector<Bfloat16> narrow;
  for (const float value : whole) narrow.push_back(ToBfloat16(value));
  Baton(3).Run([&](SequenceGroup& group) {
    TokenShards shards;
    shards.Assign(&group, texts, images);
    const TokenRows own = shards.rows(Stream::kText), all = shards.all_rows(Stream::kText);
    std::vector<BlockCopy> share;
    for (std::size_t b = 0; b < texts.size(); ++b) {
      const Index at = static_cast<Index>(b), first = all.first[at] + shards.first_token(Stream::kText)[b];
      share.push_back({3 * first, 3 * own.first[at], 1, 3 * own.tokens(at), 0, 0});
    }
    std::vector<float> floats(static_cast<std::size_t>(3 * own.rows())), all_floats(whole.size());
    std::vector<Bfloat16> narrows(floats.size()), all_narrows(narrow.size()), collected(narrow.size());
    CopyBlocks(share, whole.data(), floats.data());
    CopyBlocks(share, narrow.data(), narrows.data());
    std::vector<TokenShards::Transfer> transfers{
        {Kind::kGather, Stream::kText, 3, 0, narrows.data(), all_narrows.data()},
        {Kind::kGather, Stream::kText, 3, 0, floats.data(), all_floats.data()},
        {Kind::kCollect, Stream::kText, 3, 0, narrows.data(), {}}};
    if (group.index() == 0) transfers.back().to = collected.data();
    shards.Exchange(transfers);
    EXPECT_EQ(all_floats, whole);
    EXPECT_EQ(all_narrows, narrow);
    EXPECT_EQ(collected, group.index() == 0 ? narrow : std::vector<Bfloat16>(narrow.size()));
    transfers[0].to = all_floats.data();
    EXPECT_THROW(shards.Exchange(transfers), InternalError) << "nothing is converted";
  });
}

}  // namespace
}  // namespace spotlight
