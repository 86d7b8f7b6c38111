#include "plan/prompt_sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::HasSubstr;

// 10 prompts "color", then 30 "counting".
std::vector<Prompt> TaggedPrompts() {
  std::vector<Prompt> prompts(40);
  for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i].tag = i < 10 ? "color" : "counting";
  return prompts;
}

std::string MessageOf(const std::vector<Prompt>& prompts, const std::vector<WeightedName>& weights) {
  try {
    PromptSampler(prompts, weights, 1);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// Share of "color" among the first prompts drawn in many iterations.
double ColorShare(const PromptSampler& sampler) {
  int color = 0;
  constexpr int kIterations = 4000;
  for (std::uint32_t iteration = 0; iteration < kIterations; ++iteration) {
    if (sampler.Draw(iteration, 1)[0] < 10) ++color;
  }
  return static_cast<double>(color) / kIterations;
}

TEST(PromptSampler, NoPromptTwiceAndAllCanBeDrawn) {
  const PromptSampler sampler(TaggedPrompts(), {{"counting", 3}}, 7);
  for (std::uint32_t iteration = 0; iteration < 20; ++iteration) {
    const std::vector<int> drawn = sampler.Draw(iteration, 40);
    EXPECT_EQ(std::set<int>(drawn.begin(), drawn.end()).size(), 40U);
  }
}

TEST(PromptSampler, DrawsDependOnSeedAndIterationOnly) {
  const PromptSampler sampler(TaggedPrompts(), {}, 7);
  const std::vector<int> first = sampler.Draw(3, 8);
  EXPECT_NE(sampler.Draw(4, 8), first);
  EXPECT_EQ(sampler.Draw(3, 8), first);
  EXPECT_EQ(PromptSampler(TaggedPrompts(), {}, 7).Draw(3, 8), first);
  EXPECT_NE(PromptSampler(TaggedPrompts(), {}, 8).Draw(3, 8), first);
}

TEST(PromptSampler, TagsAreDrawnByWeight) {
  // Standard error of a share over 4000 draws: below 0.008.
  EXPECT_NEAR(ColorShare(PromptSampler(TaggedPrompts(), {{"color", 3}}, 1)), 0.75, 0.03);
  EXPECT_NEAR(ColorShare(PromptSampler(TaggedPrompts(), {{"color", 1}, {"counting", 4}}, 1)), 0.2, 0.03);
  // Without weights every prompt, not every tag, is equally likely.
  EXPECT_NEAR(ColorShare(PromptSampler(TaggedPrompts(), {}, 1)), 0.25, 0.03);
}

TEST(PromptSampler, WeightZeroIsNeverDrawn) {
  const PromptSampler sampler(TaggedPrompts(), {{"counting", 0}}, 1);
  EXPECT_EQ(sampler.drawable(), 10);
  for (const int prompt : sampler.Draw(0, 10)) EXPECT_LT(prompt, 10);
  try {
    sampler.Draw(0, 11);
    FAIL() << "more prompts than there are";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("group/prompts: 11 different prompts an iteration, but only 10"));
  }
}

TEST(PromptSampler, BadWeightsAreNamed) {
  EXPECT_THAT(MessageOf(TaggedPrompts(), {{"colour", 1}}), HasSubstr("tag 'colour'; did you mean 'color'?"));
  EXPECT_THAT(MessageOf(TaggedPrompts(), {{"color", 1}, {"color", 2}}), HasSubstr("'color' is listed twice"));
  EXPECT_THAT(MessageOf(TaggedPrompts(), {{"color", -1}}), HasSubstr("the weight of 'color' is -1"));
  EXPECT_THAT(MessageOf(TaggedPrompts(), {{"color", std::numeric_limits<double>::infinity()}}),
              HasSubstr("the weight of 'color' is inf"));
  EXPECT_THAT(MessageOf(TaggedPrompts(), {{"color", 0}, {"counting", 0}}), HasSubstr("every tag has the weight 0"));
  EXPECT_THAT(MessageOf({}, {}), HasSubstr("no prompts"));
}

TEST(PromptSampler, SeedNamesAreUnique) {
  EXPECT_NE(SeedName(1, 0), SeedName(0, 1));
  EXPECT_NE(SeedName(1, 5), SeedName(1, 6));
}

}  // namespace
}  // namespace spotlight
