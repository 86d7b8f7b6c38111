#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "reward/reward.hpp"
#include "shapes_data.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

void Check(const std::vector<WeightedName>& terms, const std::vector<Prompt>& prompts = {}, bool has_detector = true) {
  RewardConfig config;
  config.terms = terms;
  CheckReward(config, prompts, "prompts.jsonl", has_detector, "models/detector.safetensors");
}

Prompt Ring(int line) {
  Prompt prompt;
  prompt.text = "a photo of a ring";
  prompt.include = {Wants("ring")};
  prompt.line = line;
  return prompt;
}

Prompt Plain(int line) {
  Prompt prompt;
  prompt.text = "a dog";
  prompt.line = line;
  return prompt;
}

TEST(CheckReward, AcceptsTheShippedPrompts) {
  EXPECT_NO_THROW(Check({{"geneval_mix", 1}, {"brightness", 0}}, EvalPrompts()));
  for (const std::string& task : kTasks) EXPECT_NO_THROW(Check({{"geneval_exact", 1}}, TaskPrompts(task)));
  EXPECT_NO_THROW(Check({{"brightness", 1}}, {Plain(1)}, false));
}

TEST(CheckReward, UnknownTerm) {
  EXPECT_THAT(
      [] {
        Check({{"genval_soft", 1}});
      },
      ThrowsMessage<UserError>(AllOf(HasSubstr("unknown term genval_soft; did you mean geneval_soft?"),
                                     HasSubstr("geneval_strict, geneval_soft"), HasSubstr("brightness"))));
  EXPECT_THAT(
      [] {
        Check({{"hpsv3_with_more", 1}});
      },
      ThrowsMessage<UserError>(HasSubstr("unknown term hpsv3_with_more; allowed: geneval_strict")));
}

TEST(CheckReward, WeightsThatMakeNoSense) {
  EXPECT_THAT([] { Check({}); }, ThrowsMessage<UserError>(HasSubstr("reward/terms is empty")));
  EXPECT_THAT(
      [] {
        Check({{"brightness", 0}, {"geneval_soft", 0}});
      },
      ThrowsMessage<UserError>(HasSubstr("weights sum to 0")));
  EXPECT_THAT(
      [] {
        Check({{"brightness", -0.5}});
      },
      ThrowsMessage<UserError>(HasSubstr("weight -0.5 of brightness must be a number >= 0")));
  EXPECT_THROW(Check({{"brightness", std::numeric_limits<double>::infinity()}}), UserError);
  EXPECT_THROW(Check({{"brightness", std::numeric_limits<double>::quiet_NaN()}}), UserError);
  EXPECT_THAT(
      [] {
        Check({{"brightness", 1}, {"brightness", 2}});
      },
      ThrowsMessage<UserError>(HasSubstr("brightness is named twice")));
}

TEST(CheckReward, MissingDetector) {
  EXPECT_THAT(
      [] {
        Check({{"geneval_soft", 1}}, {}, false);
      },
      ThrowsMessage<UserError>(AllOf(HasSubstr("geneval_soft needs the shape detector"),
                                     HasSubstr("there is no models/detector.safetensors"),
                                     HasSubstr("reward/detector"))));
}

TEST(CheckReward, CommandAndItsTermNeedEachOther) {
  RewardConfig config;
  const auto check = [&] { CheckReward(config, {Plain(1)}, "prompts.txt", false, "detector.safetensors"); };
  config.terms = {{"brightness", 1}, {"command", 1}};
  EXPECT_THAT(check, ThrowsMessage<UserError>(
                         AllOf(HasSubstr("reward/terms: command needs a program"), HasSubstr("set reward/command"))));
  config.command = "exit 1";  // is not started here
  EXPECT_NO_THROW(check());
  config.terms = {{"brightness", 1}};
  EXPECT_THAT(check, ThrowsMessage<UserError>(AllOf(HasSubstr("reward/command = exit 1: no term in reward/terms"),
                                                    HasSubstr("add command:1.0"))));
}

TEST(CheckReward, PromptWithoutIncludeList) {
  EXPECT_THAT(
      [] {
        Check({{"brightness", 1}, {"geneval_soft", 1}}, {Ring(1), Plain(7)});
      },
      ThrowsMessage<UserError>(
          AllOf(HasSubstr("prompts.jsonl:7: geneval_soft needs an \"include\" list"), HasSubstr("\"a dog\""))));
  Prompt plain = Plain(7);
  plain.rewards = {"brightness"};  // then geneval_soft is not asked
  EXPECT_NO_THROW(Check({{"brightness", 1}, {"geneval_soft", 1}}, {Ring(1), plain}));
}

TEST(CheckReward, PromptThatNamesTerms) {
  Prompt prompt = Ring(3);
  prompt.rewards = {"geneval_sofd"};
  EXPECT_THAT(
      [&] {
        Check({{"geneval_soft", 1}}, {prompt});
      },
      ThrowsMessage<UserError>(HasSubstr("prompts.jsonl:3: \"rewards\" names geneval_sofd, which is not in "
                                         "reward/terms; did you mean geneval_soft?")));
  prompt.rewards = {"brightness"};
  EXPECT_THAT(
      [&] {
        Check({{"geneval_soft", 1}, {"brightness", 0}}, {prompt});
      },
      ThrowsMessage<UserError>(HasSubstr("prompts.jsonl:3: the terms in \"rewards\" (brightness) have weight 0")));
}

TEST(CheckReward, ClassOrColorThatTheDetectorDoesNotKnow) {
  Prompt prompt = Ring(4);
  prompt.include[0].object_class = "sqare";
  EXPECT_THAT(
      [&] {
        Check({{"geneval_soft", 1}}, {prompt});
      },
      ThrowsMessage<UserError>(
          HasSubstr("prompts.jsonl:4: the shape detector knows no class \"sqare\"; did you mean square?")));
  EXPECT_NO_THROW(Check({{"brightness", 1}}, {prompt}));
  prompt = Ring(5);
  prompt.include[0].color = "orange";
  EXPECT_THAT(
      [&] {
        Check({{"geneval_soft", 1}}, {prompt});
      },
      ThrowsMessage<UserError>(AllOf(HasSubstr("prompts.jsonl:5: "), HasSubstr("no color \"orange\""))));
  prompt = Ring(6);
  prompt.exclude = {Wants("bench")};
  EXPECT_THAT(
      [&] {
        Check({{"geneval_soft", 1}}, {prompt});
      },
      ThrowsMessage<UserError>(AllOf(HasSubstr("prompts.jsonl:6: "), HasSubstr("no class \"bench\""))));
}

}  // namespace
}  // namespace spotlight
