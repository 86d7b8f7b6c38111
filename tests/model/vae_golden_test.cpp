// The autoencoder's decoder against diffusers' numbers: every case of vae_decode.safetensors with its intermediates,
// at the tolerances of the set's README, and what must not change a bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "base/error.hpp"
#include "kernels/latents.hpp"
#include "kernels/operations.hpp"
#include "model/qwen_vae.hpp"
#include "tests/model/golden.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// cuDNN's convolutions round what they multiply to TF32.
bool RoundsOperands() { return std::string_view(ActiveOperations().name) == "cuda"; }
double L2() { return RoundsOperands() ? 5e-3 : 1e-5; }
double Max() { return RoundsOperands() ? 1.5e-2 : 3e-5; }

std::string VaeFolder() { return GoldenDir() + "/vae"; }

QwenVae LoadVae(Index band_floats = QwenVae::kBandFloats) {
  return {ReadVaeConfig(VaeFolder()), WeightMapSource(ReadWeights(VaeFolder()), VaeFolder()), band_floats};
}

// [channels, rows * columns] of a map, as torch has it.
std::vector<float> ChannelsFirst(std::span<const float> values, Index channels) {
  const Index pixels = static_cast<Index>(values.size()) / channels;
  std::vector<float> turned(values.size());
  for (Index p = 0; p < pixels; ++p) {
    for (Index c = 0; c < channels; ++c) {
      turned[static_cast<std::size_t>(c * pixels + p)] = values[static_cast<std::size_t>(p * channels + c)];
    }
  }
  return turned;
}

// Latents of one image.
struct VaeCase {
  std::vector<float> latents;  // [z_dim, rows, columns]
  Index rows, columns;
};

std::vector<VaeCase> ReadCases(const HostTensor& latents) {  // [B, z_dim, 1, rows, columns]
  std::vector<VaeCase> cases;
  const Index size = NumElements(latents.shape) / latents.shape[0];
  for (Index b = 0; b < latents.shape[0]; ++b) {
    const auto begin = latents.data.begin() + b * size;
    cases.push_back({{begin, begin + size}, latents.shape[3], latents.shape[4]});
  }
  return cases;
}

TEST(VaeGolden, Decodes) {
  const std::string path = GoldenDir() + "/vae_decode.safetensors";
  if (!InGoldenSet(path)) return;
  const SafetensorsFile file(path);
  const QwenVae vae = LoadVae();
  const std::size_t count = GoldenSpec().at("vae").at("latents").size();
  EXPECT_GE(count, 1u);
  for (std::size_t k = 0; k < count; ++k) {
    const std::string name = "case" + std::to_string(k);
    std::vector<float> images;
    std::map<std::string, std::vector<float>> seen;
    for (const VaeCase& c : ReadCases(file.Read(name + ".latents"))) {
      const auto keep = [&](const std::string& map_name, const FeatureMap& map) {
        std::vector<float> host(static_cast<std::size_t>(map.values.size()));
        map.values.CopyToHost(host);
        host = ChannelsFirst(host, map.channels);
        std::vector<float>& all = seen[map_name];
        all.insert(all.end(), host.begin(), host.end());
      };
      const std::vector<float> image = vae.DecodeLatents(c.latents, c.rows, c.columns, keep);
      EXPECT_EQ(image, vae.DecodeLatents(c.latents, c.rows, c.columns)) << "an observer changes nothing";
      const std::vector<float> turned = ChannelsFirst(image, 3);
      images.insert(images.end(), turned.begin(), turned.end());
    }
    EXPECT_CLOSE(images, file.Read(name + ".image").data, L2(), Max(), name);
    EXPECT_CLOSE(seen["denormalized"], file.Read(name + ".denormalized").data, L2(), Max(), name + ".denormalized");
    for (const std::string& golden : file.names()) {
      const std::string prefix = name + ".inter.";
      if (!golden.starts_with(prefix)) continue;
      ASSERT_TRUE(seen.contains(golden.substr(prefix.size()))) << golden << " is not compared";
      EXPECT_CLOSE(seen[golden.substr(prefix.size())], file.Read(golden).data, L2(), Max(), golden);
    }
  }
}

TEST(VaeGolden, DecodesPackedLatents) {
  const std::string path = GoldenDir() + "/vae_decode.safetensors";
  if (!InGoldenSet(path)) return;
  const SafetensorsFile file(path);
  const QwenVae vae = LoadVae();
  int compared = 0;
  for (const std::string& name : file.names()) {
    if (!name.ends_with(".latents")) continue;
    for (const VaeCase& c : ReadCases(file.Read(name))) {
      if (c.rows % 2 != 0 || c.columns % 2 != 0) continue;  // cannot be packed
      std::vector<float> packed(c.latents.size());
      PackLatents(1, vae.channels(), c.rows / 2, c.columns / 2, c.latents.data(), packed.data());
      const Image image = vae.Decode(packed, c.rows / 2, c.columns / 2);
      EXPECT_EQ(image.height, 8 * c.rows);
      EXPECT_EQ(image.width, 8 * c.columns);
      std::vector<float> expected = vae.DecodeLatents(c.latents, c.rows, c.columns);
      for (float& value : expected) value = value / 2 + 0.5f;
      EXPECT_EQ(image.rgb, expected);
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

// 14 x 18 latents: 252 positions in the attention, more than a block of queries or of keys; a band of 2 rows and one of
// the whole image.
TEST(QwenVae, TheHeightOfABandChangesNoBit) {
  const Index rows = 14, columns = 18;
  std::vector<float> latents(16 * rows * columns);
  for (std::size_t i = 0; i < latents.size(); ++i) latents[i] = std::sin(0.7f * static_cast<float>(i * i % 1009));
  const std::vector<float> whole = LoadVae().DecodeLatents(latents, rows, columns);
  const auto [least, most] = std::minmax_element(whole.begin(), whole.end());
  EXPECT_LT(*least, *most - 0.1f);
  for (const Index band_floats : {1, 3000, 20000}) {
    EXPECT_EQ(LoadVae(band_floats).DecodeLatents(latents, rows, columns), whole) << band_floats;
  }
}

class VaeWeights : public testing::Test {
 protected:
  std::string Refusal() {
    try {
      QwenVae(ReadVaeConfig(VaeFolder()), WeightMapSource(weights_, "x/vae"));
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  WeightMap weights_ = ReadWeights(VaeFolder());
};

TEST_F(VaeWeights, OnlyTheDecoderIsRead) {
  weights_["encoder.conv_in.weight"] = {{1}, {NAN}};
  weights_["quant_conv.weight"] = {{1}, {NAN}};
  weights_["decoder.up_blocks.0.upsamplers.0.time_conv.weight"] = {{1}, {NAN}};
  EXPECT_EQ(Refusal(), "");
}

TEST_F(VaeWeights, OneMessageNamesWhatDoesNotFit) {
  weights_.erase("decoder.up_blocks.1.resnets.0.conv_shortcut.bias");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr("x/vae: tensor decoder.up_blocks.1.resnets.0.conv_shortcut.bias [32] is missing"),
                    Not(HasSubstr("more"))));
  weights_["decoder.mid_block.attentions.0.to_qkv.weight"].shape = {32, 96, 1, 1};
  weights_["decoder.norm_out.gamma"].shape = {1, 8, 1, 1};
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("decoder.mid_block.attentions.0.to_qkv.weight is [32, 96, 1, 1], expected "
                                         "[96, 32, 1, 1]"),
                               HasSubstr("(and 2 more)"), HasSubstr("vae/config.json")));
}

TEST_F(VaeWeights, ValuesMustBeFinite) {
  weights_["post_quant_conv.weight"].data[3] = NAN;
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("x/vae"), HasSubstr("post_quant_conv.weight"), HasSubstr("not finite")));
}

}  // namespace
}  // namespace spotlight
