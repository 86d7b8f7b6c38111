#include "reward/shape_detector.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "reward/geneval.hpp"
#include "reward/shape_world.hpp"
#include "shapes_data.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Prompt Colored(const std::string& shape, const std::string& color) {
  Prompt prompt;
  prompt.text = "a photo of a " + color + " " + shape;
  prompt.include = {Wants(shape, 1, color)};
  return prompt;
}

Image Constant(int height, int width, float value) {
  return {height, width, std::vector<float>(static_cast<std::size_t>(height) * width * 3, value)};
}

// The first 8 held-out prompts as the base model drew them, scored by the NumPy detector that its results rest on.
TEST(ShapeDetector, ScoresTheReferenceImagesAsTheReference) {
  const WeightMap reference = ReadSafetensors(kSourceDir + "/tests/data/tiny-shapes/reference.safetensors");
  for (const std::string run : {"a0.0", "a0.7"}) {
    const HostTensor& images = reference.at(run + ".image");
    const HostTensor& rewards = reference.at(run + ".rewards");
    ASSERT_EQ(images.shape, (Shape{8, 64, 64, 3}));
    ASSERT_EQ(rewards.shape, (Shape{8, 3}));
    const std::size_t size = images.data.size() / 8;
    for (int i = 0; i < 8; ++i) {
      const auto begin = images.data.begin() + i * size;
      const Image image{64, 64, std::vector<float>(begin, begin + size)};
      const GenevalScores scores = ScoreGeneval(EvalPrompts()[i], ShippedDetector().Detect(image));
      EXPECT_EQ(static_cast<float>(scores.strict), rewards.data[3 * i]) << run << " image " << i;
      EXPECT_EQ(static_cast<float>(scores.soft), rewards.data[3 * i + 1]) << run << " image " << i;
      EXPECT_EQ(static_cast<float>(scores.dense), rewards.data[3 * i + 2]) << run << " image " << i;
    }
  }
}

TEST(ShapeDetector, ReportsBoxColorAndFullConfidenceOfACleanSprite) {
  for (int shape = 0; shape < kNumShapes; ++shape) {
    const Prompt prompt = Colored(ShapeNames()[shape], "red");  // the colour of the clean templates
    const std::vector<Detection> found = ShippedDetector().Detect(RenderPrompt(prompt, 3));
    ASSERT_EQ(found.size(), 1u) << prompt.text;
    EXPECT_EQ(found[0].object_class, ShapeNames()[shape]);
    EXPECT_EQ(found[0].confidence, 1.0) << prompt.text;  // the template, bit for bit
    EXPECT_EQ(found[0].color, "red");
    EXPECT_GT(ShareOf(found[0], "red"), 0.9);
    EXPECT_LE(found[0].box.x1 - found[0].box.x0, kSpriteSide);
    EXPECT_GE(found[0].box.x1 - found[0].box.x0, kSpriteSide - 2);
    EXPECT_GE(found[0].area, 80);
  }
}

// Share of sprites that are found alone with the right class, and with the right colour, under pixel noise.
TEST(ShapeDetector, WithstandsPixelNoise) {
  struct Case {
    float sigma;
    double min_shape;
    double max_shape;
  };
  for (const Case& c : {Case{0.05f, 1, 1}, Case{0.10f, 0.99, 1}, Case{0.15f, 0.90, 1}, Case{0.20f, 0.50, 0.80}}) {
    int shapes = 0;
    int colors = 0;
    constexpr int kImages = 360;
    for (int i = 0; i < kImages; ++i) {
      const Prompt prompt = Colored(ShapeNames()[i % kNumShapes], ColorNames()[i / kNumShapes % kNumColors]);
      Image image = RenderPrompt(prompt, i);
      std::vector<float> noise(image.rgb.size());
      FillNormal(StreamKey({1234, static_cast<std::uint64_t>(i)}), 0, noise);
      for (std::size_t k = 0; k < noise.size(); ++k) image.rgb[k] += c.sigma * noise[k];
      const std::vector<Detection> found = ShippedDetector().Detect(image);
      if (found.size() != 1) continue;
      shapes += found[0].object_class == prompt.include[0].object_class;
      colors += found[0].color == prompt.include[0].color;
    }
    EXPECT_GE(shapes, c.min_shape * kImages) << "sigma " << c.sigma;
    EXPECT_LE(shapes, c.max_shape * kImages) << "sigma " << c.sigma;
    EXPECT_GE(colors, 0.99 * kImages) << "sigma " << c.sigma;
  }
}

TEST(ShapeDetector, ATwoColoredSpriteHasNoClearColor) {
  Image image = RenderPrompt(Colored("square", "red"), 0);
  const Box box = ShippedDetector().Detect(image).at(0).box;
  for (int y = box.y0; y < box.y1; ++y) {
    for (int x = box.x0; x < (box.x0 + box.x1) / 2; ++x) {
      for (int c = 0; c < 3; ++c) image.rgb[(y * 64 + x) * 3 + c] = kPalette[2][c];
    }
  }
  const std::vector<Detection> found = ShippedDetector().Detect(image);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].object_class, "square");
  EXPECT_EQ(found[0].color, "");
  EXPECT_NEAR(ShareOf(found[0], "blue"), 0.5, 0.05);
}

TEST(ShapeDetector, DiagonalNeighboursAreTwoObjects) {
  Image image = Constant(40, 40, kBackground);
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 12; ++j) {
      for (int c = 0; c < 3; ++c) {
        image.rgb[((4 + i) * 40 + 4 + j) * 3 + c] = 0.95f;
        image.rgb[((16 + i) * 40 + 16 + j) * 3 + c] = 0.95f;
      }
    }
  }
  const std::vector<Detection> found = ShippedDetector().Detect(image);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].box.x0, 4);
  EXPECT_EQ(found[1].box.x1, 28);
  EXPECT_EQ(found[1].area, 144);
}

TEST(ShapeDetector, IgnoresSpecksAndDoesNotNameBars) {
  Image image = Constant(64, 64, kBackground);
  const auto fill = [&](int y0, int x0, int height, int width) {
    for (int y = y0; y < y0 + height; ++y) {
      for (int x = x0; x < x0 + width; ++x) {
        for (int c = 0; c < 3; ++c) image.rgb[(y * 64 + x) * 3 + c] = 0.95f;
      }
    }
  };
  fill(2, 2, 7, 7);    // 7 < 8 pixels wide
  fill(20, 2, 7, 40);  // large, but only 7 high
  fill(40, 2, 10, 40);
  const std::vector<Detection> found = ShippedDetector().Detect(image);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].box.y0, 40);
  EXPECT_EQ(found[0].object_class, "");  // 4:1
}

TEST(ShapeDetector, NanIsBackgroundAndInfinityIsClamped) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(ShippedDetector().Detect(Constant(64, 64, nan)).empty());
  EXPECT_TRUE(ShippedDetector().Detect(Constant(64, 64, -infinity)).empty());
  const std::vector<Detection> white = ShippedDetector().Detect(Constant(64, 64, infinity));
  ASSERT_EQ(white.size(), 1u);
  EXPECT_EQ(white[0].color, "white");
  EXPECT_EQ(white[0].area, 64 * 64);

  Image image = RenderPrompt(Colored("square", "red"), 0);
  const Box box = ShippedDetector().Detect(image).at(0).box;
  image.rgb[(box.y0 * 64 + box.x0) * 3 + 1] = nan;
  image.rgb[0] = nan;
  const std::vector<Detection> found = ShippedDetector().Detect(image);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].object_class, "square");
  EXPECT_TRUE(std::isfinite(found[0].confidence));
}

TEST(ShapeDetector, TakesAnySize) {
  EXPECT_TRUE(ShippedDetector().Detect({}).empty());
  EXPECT_TRUE(ShippedDetector().Detect(Constant(1, 1, 1.0f)).empty());
  EXPECT_TRUE(ShippedDetector().Detect(Constant(1, 200, 1.0f)).empty());
  EXPECT_EQ(ShippedDetector().Detect(Constant(8, 8, 1.0f)).size(), 1u);
  EXPECT_THROW(ShippedDetector().Detect({2, 2, std::vector<float>(5)}), InternalError);
}

TEST(ShapeDetector, RefusesFilesThatDoNotFit) {
  const HostTensor templates{{2, 144}, std::vector<float>(288, 0.5f)};
  const auto construct = [&](WeightMap weights) { return [=] { ShapeDetector(weights, "a/detector.safetensors"); }; };
  EXPECT_THAT(construct({{"templates", templates}}),
              ThrowsMessage<UserError>(HasSubstr("a/detector.safetensors: no tensor \"class\"")));
  EXPECT_THAT(construct({{"templates", {{2, 100}, std::vector<float>(200)}}, {"class", {{2}, {0, 1}}}}),
              ThrowsMessage<UserError>(AllOf(HasSubstr("[2, 100]"), HasSubstr("[n, 144]"))));
  EXPECT_THAT(construct({{"templates", templates}, {"class", {{3}, {0, 1, 2}}}}),
              ThrowsMessage<UserError>(HasSubstr("\"class\" [3]")));
  EXPECT_THAT(construct({{"templates", templates}, {"class", {{2}, {0, 6}}}}),
              ThrowsMessage<UserError>(HasSubstr("whole number from 0 to 5")));
  HostTensor broken = templates;
  broken.data[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(construct({{"templates", broken}, {"class", {{2}, {0, 1}}}}),
              ThrowsMessage<UserError>(HasSubstr("a coverage is in [0, 1]")));
}

}  // namespace
}  // namespace spotlight
