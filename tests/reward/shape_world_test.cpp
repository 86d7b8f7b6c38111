#include "reward/shape_world.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "reward/geneval.hpp"
#include "shapes_data.hpp"

namespace spotlight {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ShapeWorld, SpritesAreTheReferences) {
  const WeightMap file = ReadSafetensors(kSourceDir + "/inputs/models/tiny-shapes/detector.safetensors");
  const std::vector<float>& sprites = file.at("sprites").data;
  ASSERT_EQ(sprites.size(), kNumShapes * std::tuple_size_v<Sprite>);
  for (int shape = 0; shape < kNumShapes; ++shape) {
    const Sprite& sprite = ShapeSprite(shape);
    EXPECT_TRUE(std::equal(sprite.begin(), sprite.end(), sprites.begin() + shape * sprite.size())) << shape;
  }
}

TEST(ShapeWorld, RenderingIsAFunctionOfPromptAndKey) {
  const Prompt prompt = TaskPrompts("two_object").front();
  EXPECT_EQ(RenderPrompt(prompt, 7).rgb, RenderPrompt(prompt, 7).rgb);
  EXPECT_NE(RenderPrompt(prompt, 7).rgb, RenderPrompt(prompt, 8).rgb);
}

TEST(ShapeWorld, UsesEveryCellAndColor) {
  Prompt prompt;
  prompt.include = {Wants("square")};
  std::vector<int> cells(16), colors(kNumColors);
  for (int key = 0; key < 400; ++key) {
    const std::vector<Detection> found = ShippedDetector().Detect(RenderPrompt(prompt, key));
    ASSERT_EQ(found.size(), 1u);
    ++cells[found[0].box.y0 / kCellSide * 4 + found[0].box.x0 / kCellSide];
    ++colors[std::ranges::find(ColorNames(), found[0].color) - ColorNames().begin()];
  }
  EXPECT_GT(*std::ranges::min_element(cells), 5);    // 25 expected
  EXPECT_GT(*std::ranges::min_element(colors), 35);  // 67 expected
}

// A photo of everything the world can hold satisfies its prompt: the renderer, the detector and the rule agree.
class GroundTruth : public ::testing::TestWithParam<std::string> {};

TEST_P(GroundTruth, IsAlwaysCorrect) {
  const std::vector<Prompt> prompts = TaskPrompts(GetParam());
  ASSERT_FALSE(prompts.empty());
  for (int i = 0; i < 300; ++i) {
    const Prompt& prompt = prompts[i % prompts.size()];
    const GenevalScores scores = ScoreGeneval(prompt, ShippedDetector().Detect(RenderPrompt(prompt, i)));
    EXPECT_EQ(scores.strict, 1) << prompt.text << ", key " << i;
    EXPECT_EQ(scores.soft, 1) << prompt.text << ", key " << i;
    EXPECT_EQ(scores.exact, 1) << prompt.text << ", key " << i;
    EXPECT_GT(scores.dense, 0.85) << prompt.text << ", key " << i;
  }
}

// The image of another prompt of the same task rarely satisfies a prompt.
TEST_P(GroundTruth, OfAnotherPromptIsWrong) {
  std::vector<Prompt> prompts = TaskPrompts(GetParam());
  const int n = static_cast<int>(prompts.size());
  int strict = 0;
  double soft = 0;
  int pairs = 0;
  for (int i = 0; i < 200; ++i) {
    const Prompt& asked = prompts[(i * 31) % n];
    const Prompt& drawn = prompts[(i * 17 + 5) % n];
    if (asked.id == drawn.id) continue;
    const GenevalScores scores = ScoreGeneval(asked, ShippedDetector().Detect(RenderPrompt(drawn, i)));
    strict += scores.strict == 1;
    soft += scores.soft;
    ++pairs;
  }
  ASSERT_GT(pairs, 100);
  EXPECT_LE(strict, 0.03 * pairs);
  EXPECT_LE(soft, 0.30 * pairs);
}

INSTANTIATE_TEST_SUITE_P(Tasks, GroundTruth, ::testing::ValuesIn(kTasks), [](const auto& info) { return info.param; });

TEST(ShapeWorld, DrawsFreeCombinations) {
  Prompt prompt;
  prompt.include = {Wants("heart", 2, "blue"), Wants("ring", 3, "red", "above", 0)};
  for (int key = 0; key < 20; ++key) {
    const GenevalScores scores = ScoreGeneval(prompt, ShippedDetector().Detect(RenderPrompt(prompt, key)));
    EXPECT_EQ(scores.strict, 1);
    EXPECT_EQ(scores.exact, 1);
  }
}

TEST(ShapeWorld, RefusesWhatItCannotDraw) {
  Prompt prompt;
  prompt.text = "a photo of a bench";
  prompt.include = {Wants("bench")};
  EXPECT_THAT([&] { RenderPrompt(prompt, 0); },
              ThrowsMessage<UserError>(HasSubstr("shape \"bench\"; it has circle, square, triangle")));
  prompt.include = {Wants("ring", 1, "mauve")};
  EXPECT_THAT([&] { RenderPrompt(prompt, 0); },
              ThrowsMessage<UserError>(HasSubstr("colour \"mauve\"; it has red, green")));
  prompt.include = {Wants("ring", 17)};
  EXPECT_THAT([&] { RenderPrompt(prompt, 0); }, ThrowsMessage<UserError>(HasSubstr("more than the 16 objects")));
  prompt.include = {Wants("ring", 8), Wants("heart", 8, "", "above", 0)};
  EXPECT_THAT([&] { RenderPrompt(prompt, 0); }, ThrowsMessage<UserError>(HasSubstr("no placement")));
}

}  // namespace
}  // namespace spotlight
