#include "reward/reward.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "reward/shape_world.hpp"
#include "shapes_data.hpp"

namespace spotlight {
namespace {

using ::testing::HasSubstr;

RewardConfig Terms(std::vector<WeightedName> terms) {
  RewardConfig config;
  config.terms = std::move(terms);
  return config;
}

Prompt RedRing() {
  Prompt prompt;
  prompt.text = "a photo of a red ring";
  prompt.include = {Wants("ring", 1, "red")};
  return prompt;
}

Image BlueRing() {
  Prompt prompt = RedRing();
  prompt.include[0].color = "blue";
  return RenderPrompt(prompt, 0);
}

TEST(Reward, IsTheWeightedMeanOfItsTerms) {
  const Reward reward(Terms({{"geneval_soft", 3}, {"geneval_strict", 1}}), ShippedDetector());
  EXPECT_THAT(reward.names(), ::testing::ElementsAre("geneval_soft", "geneval_strict"));
  const RewardScore right = reward.Score(RedRing(), RenderPrompt(RedRing(), 0));
  EXPECT_EQ(right.total, 1);
  EXPECT_THAT(right.terms, ::testing::ElementsAre(1, 1));
  const RewardScore wrong_color = reward.Score(RedRing(), BlueRing());
  EXPECT_THAT(wrong_color.terms, ::testing::ElementsAre(0.5, 0));
  EXPECT_DOUBLE_EQ(wrong_color.total, 3 * 0.5 / 4);
}

TEST(Reward, GenevalTermsAreTheRulesScores) {
  const Reward reward(
      Terms(
          {{"geneval_strict", 1}, {"geneval_soft", 1}, {"geneval_dense", 1}, {"geneval_exact", 1}, {"geneval_mix", 1}}),
      ShippedDetector());
  const std::vector<double> terms = reward.Score(RedRing(), BlueRing()).terms;
  EXPECT_EQ(terms[0], 0);
  EXPECT_EQ(terms[1], 0.5);
  EXPECT_GT(terms[2], 0.4);
  EXPECT_LT(terms[2], 0.51);
  EXPECT_EQ(terms[3], 0.5);
  EXPECT_EQ(terms[4], 0.25);
}

TEST(Reward, TidyCountsWhatIsBeyondThePrompt) {
  const Reward reward(Terms({{"geneval_tidy", 1}}), ShippedDetector());
  Prompt three = RedRing();
  three.include = {Wants("ring", 1), Wants("heart", 2)};
  const Image image = RenderPrompt(three, 0);
  EXPECT_EQ(reward.Score(three, image).total, 1);
  Prompt two = RedRing();
  two.include = {Wants("ring", 1), Wants("heart", 1)};
  EXPECT_EQ(reward.Score(two, image).total, 0.5);      // one object too many for two
  EXPECT_EQ(reward.Score(RedRing(), image).total, 0);  // two too many for one
  three.include[1].count = 4;
  EXPECT_EQ(reward.Score(three, image).total, 1);  // too few is not its business
}

TEST(Reward, TermsThatAPromptLeavesOutAreNan) {
  const Reward reward(Terms({{"geneval_strict", 5}, {"brightness", 1}}), ShippedDetector());
  Prompt plain;  // no include list: a geneval term would fail
  plain.text = "a bright photo";
  plain.rewards = {"brightness"};
  const RewardScore score = reward.Score(plain, {1, 1, {1, 1, 1}});
  EXPECT_TRUE(std::isnan(score.terms[0]));
  EXPECT_DOUBLE_EQ(score.terms[1], 1);
  EXPECT_DOUBLE_EQ(score.total, 1);  // not 1/6
}

TEST(Reward, ATermOfWeightZeroIsScoredButDoesNotCount) {
  const Reward reward(Terms({{"geneval_strict", 1}, {"brightness", 0}}), ShippedDetector());
  const RewardScore score = reward.Score(RedRing(), RenderPrompt(RedRing(), 0));
  EXPECT_EQ(score.total, 1);
  EXPECT_GT(score.terms[1], 0);
}

TEST(Reward, BrightnessIsTheMeanLuminance) {
  const Reward reward(Terms({{"brightness", 2}}), std::nullopt);
  const auto brightness = [&](const Image& image) { return reward.Score({}, image).total; };
  EXPECT_DOUBLE_EQ(brightness({1, 2, {1, 0, 0, 0, 1, 0}}), (0.2126 + 0.7152) / 2);
  EXPECT_EQ(brightness({}), 0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_DOUBLE_EQ(brightness({1, 1, {nan, infinity, -infinity}}), 0.7152);
}

TEST(Reward, RequiresItsDetector) {
  EXPECT_THROW(Reward(Terms({{"geneval_soft", 1}}), std::nullopt), InternalError);
  EXPECT_TRUE(NeedsDetector(Terms({{"brightness", 1}, {"geneval_soft", 1}})));
  EXPECT_FALSE(NeedsDetector(Terms({{"brightness", 1}})));
}

TEST(DescribeRewards, ListsEveryTermWithItsNeeds) {
  const std::string text = DescribeRewards();
  for (const RewardTerm& term : RewardTerms()) EXPECT_THAT(text, HasSubstr("  " + term.name));
  EXPECT_THAT(text, HasSubstr("needs: prompts with GenEval's include list, detector.safetensors"));
  EXPECT_THAT(text, HasSubstr("needs: nothing"));
}

}  // namespace
}  // namespace spotlight
