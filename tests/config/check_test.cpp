// Settings that are impossible together: each message shows the numbers.
#include "config/check.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "user_error.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Config Possible() {
  Config config;
  config.model.path = "model";
  config.prompts.train = "train.jsonl";
  config.prompts.eval = "eval.jsonl";
  return config;
}

template <typename Change>
std::string ErrorAfter(Change&& change) {
  Config config = Possible();
  change(config);
  return UserErrorOf([&] { CheckConfig(config); });
}

TEST(Check, DefaultsArePossible) {
  EXPECT_NO_THROW(CheckConfig(Possible()));
  EXPECT_NO_THROW(CheckPretrain(Config{}));
}

TEST(Check, RequiredPaths) {
  EXPECT_THAT(ErrorAfter([](Config& c) { c.model.path = ""; }), HasSubstr("model/path is not given"));
  EXPECT_THAT(ErrorAfter([](Config& c) { c.prompts.train = ""; }), HasSubstr("prompts/train is not given"));
  EXPECT_THAT(ErrorAfter([](Config& c) { c.prompts.eval = ""; }), HasSubstr("prompts/eval is not given"));
}

TEST(Check, WindowLeavesOutTheLastStepUnlessCps) {
  Config config = Possible();
  config.sampler.window_last = 4;  // 4 + 5 = 9 of 10
  EXPECT_NO_THROW(CheckConfig(config));
  EXPECT_THAT(ErrorAfter([](Config& c) { c.sampler.window_last = 5; }),
              AllOf(HasSubstr("end at step 10"), HasSubstr("leaves 9 steps"), HasSubstr("sampler/noise = cps")));
  config.sampler.window_last = 5;
  config.sampler.noise = SamplerConfig::Noise::kCps;
  EXPECT_NO_THROW(CheckConfig(config));
  config.sampler.window_last = 6;
  EXPECT_THAT(UserErrorOf([&] { CheckConfig(config); }), AllOf(HasSubstr("step 11"), HasSubstr("leaves 10 steps")));
  EXPECT_THAT(ErrorAfter([](Config& c) { c.sampler.window_first = 1; }),
              AllOf(HasSubstr("sampler/window_first (default) = 1"), HasSubstr("sampler/window_last (default) = 0")));
}

TEST(Check, CpsNoiseIsAShareOfARightAngle) {
  Config config = Possible();
  config.sampler.noise_level = 1.2;
  EXPECT_NO_THROW(CheckConfig(config));
  config.sampler.noise = SamplerConfig::Noise::kCps;
  EXPECT_THAT(UserErrorOf([&] { CheckConfig(config); }),
              AllOf(HasSubstr("sampler/noise_level (default) = 1.2"), HasSubstr("0 < noise_level <= 1")));
  config.sampler.noise_level = 1;
  EXPECT_NO_THROW(CheckConfig(config));
}

TEST(Check, QwenScheduleNeedsTwoSteps) {
  EXPECT_THAT(ErrorAfter([](Config& c) {
                c.sampler.schedule = SamplerConfig::Schedule::kQwen;
                c.eval.steps = 1;
              }),
              AllOf(HasSubstr("eval/steps (default) = 1"), HasSubstr("qwen")));
}

TEST(Check, UpdatesAreFilled) {
  const auto small = [](Config& c) {
    c.group.prompts = 1;
    c.group.images = 2;
    c.sampler.window_size = 3;  // 6 pairs
  };
  Config config = Possible();
  small(config);
  config.train.updates = 6;
  EXPECT_NO_THROW(CheckConfig(config));
  EXPECT_THAT(ErrorAfter([&](Config& c) {
                small(c);
                c.train.updates = 7;
                c.sources["train/updates"] = "a.ini:3";
              }),
              AllOf(HasSubstr("train/updates (a.ini:3) = 7"), HasSubstr("= 1 x"), HasSubstr("= 2 x"),
                    HasSubstr("only 6 (sample, step) pairs")));
  EXPECT_THAT(ErrorAfter([&](Config& c) {
                small(c);
                c.ranks.trainers = 2;
              }),
              HasSubstr("asks for 8 parts"));
  config.train.updates = 4;
  config.ranks.trainers = config.ranks.trainer_sp = 2;  // who share each pass
  EXPECT_NO_THROW(CheckConfig(config));
}

TEST(Check, SizesAreNotCutTo32Bits) {
  Config config = Possible();
  config.group.prompts = 1000000;
  config.group.images = 1000000;
  EXPECT_NO_THROW(CheckConfig(config));
}

TEST(Check, ExploredSeedsFillAGroup) {
  EXPECT_THAT(ErrorAfter([](Config& c) { c.explore.seeds = 7; }),
              AllOf(HasSubstr("explore/seeds (default) = 7"), HasSubstr("group/images (default) = 8")));
  const auto exploring = [](auto change) {
    return ErrorAfter([&](Config& c) {
      c.explore.seeds = 16;
      change(c);
    });
  };
  EXPECT_THAT(exploring([](Config& c) { c.explore.steps = 11; }),
              AllOf(HasSubstr("explore/steps (default) = 11"), HasSubstr("sampler/steps (default) = 10")));
  EXPECT_THAT(exploring([](Config& c) {
                c.explore.steps = 6;
                c.explore.cache = ExploreConfig::Cache::kTea;
              }),
              AllOf(HasSubstr("explore/steps (default) = 6"), HasSubstr("explore/cache (default)")));
  EXPECT_THAT(exploring([](Config& c) {
                c.explore.steps = 6;
                c.explore.when = ExploreConfig::When::kCritical;
              }),
              AllOf(HasSubstr("critical"), HasSubstr("explore/steps")));
  EXPECT_THAT(exploring([](Config& c) {
                c.explore.budget = ExploreConfig::Budget::kFixed;
                c.explore.planner = ExploreConfig::Planner::kThompson;
                c.sources["explore/planner"] = "a.ini:3";
              }),
              AllOf(HasSubstr("explore/budget (default) = fixed"), HasSubstr("explore/planner (a.ini:3)")));
  Config config = Possible();
  config.explore.seeds = 8;
  EXPECT_NO_THROW(CheckConfig(config));
}

TEST(Check, SomethingIsLearnt) {
  EXPECT_THAT(ErrorAfter([](Config& c) { c.reward.terms.clear(); }), HasSubstr("reward/terms"));
  EXPECT_THAT(ErrorAfter([](Config& c) { c.reward.terms = {{"a", 0}}; }), HasSubstr("weight other than 0"));
  EXPECT_THAT(ErrorAfter([](Config& c) {
                c.lora.rank = 4;
                c.lora.targets.clear();
              }),
              HasSubstr("lora/targets (default) is an empty list"));
}

TEST(Check, HeadIsTheSumOfItsAxes) {
  Config config;
  config.pretrain.rope_width = 12;
  EXPECT_THAT(UserErrorOf([&] { CheckPretrain(config); }),
              AllOf(HasSubstr("4 + 10 + 12 = 26"), HasSubstr("pretrain/head_dim (default) = 24")));
}

TEST(Check, TrainersFitIntoTheWorld) {
  Config config;
  EXPECT_NO_THROW(CheckRanks(config, 1));
  EXPECT_NO_THROW(CheckRanks(config, 2));
  config.ranks.trainers = 3;
  EXPECT_NO_THROW(CheckRanks(config, 4));
  EXPECT_THAT(UserErrorOf([&] { CheckRanks(config, 3); }),
              AllOf(HasSubstr("= 3 needs 4 ranks"), HasSubstr("3 were started"), HasSubstr("ranks/trainers=2")));
  EXPECT_THAT(UserErrorOf([&] { CheckRanks(config, 1); }), HasSubstr("ranks/trainers=1"));
}

TEST(Check, TrainersAreSharedOutInWholeGroups) {
  Config config = Possible();
  config.ranks.trainers = 4;
  for (const int degree : {1, 2, 4}) {
    config.ranks.trainer_sp = degree;
    EXPECT_NO_THROW(CheckConfig(config)) << degree;
  }
  config.ranks.trainer_sp = 3;
  EXPECT_THAT(UserErrorOf([&] { CheckConfig(config); }), AllOf(HasSubstr("ranks/trainer_sp (default) = 3 must divide"),
                                                               HasSubstr("ranks/trainers (default) = 4")));
}

TEST(Check, OnlyTrainedBaseWeightsAreSharedOut) {
  Config config = Possible();
  config.train.shard_weights = true;
  EXPECT_NO_THROW(CheckConfig(config));
  config.lora.rank = 4;
  EXPECT_THAT(UserErrorOf([&] { CheckConfig(config); }),
              AllOf(HasSubstr("train/shard_weights (default) = true"), HasSubstr("lora/rank (default) = 4")));
}

TEST(Check, AnAdapterIsTrainedAsOne) {
  Config config = Possible();
  config.model.adapter = "run/x/final/lora";
  config.lora.rank = 4;
  EXPECT_NO_THROW(CheckConfig(config));
  config.lora.rank = 0;
  EXPECT_THAT(UserErrorOf([&] { CheckConfig(config); }),
              AllOf(HasSubstr("model/adapter (default) = run/x/final/lora"), HasSubstr("lora/rank (default) = 0"),
                    HasSubstr("set lora/rank to its rank")));
}

TEST(Check, TheCoordinatorsHostIsANameOrAnAddress) {
  for (const std::string host : {"tcp://node7", "node7:5000", "node 7"}) {
    EXPECT_THAT(ErrorAfter([&](Config& c) { c.ranks.host = host; }),
                HasSubstr("ranks/host (default) = '" + host + "' is no"));
  }
}

TEST(Check, ParkedRanksAreSpotRanks) {
  Config config;
  config.ranks.parked = 3;
  EXPECT_NO_THROW(CheckRanks(config, 1));
  EXPECT_NO_THROW(CheckRanks(config, 2 + 3));
  EXPECT_THAT(UserErrorOf([&] { CheckRanks(config, 2 + 2); }),
              AllOf(HasSubstr("ranks/parked (default) = 3 of 2 spot ranks"), HasSubstr("start 1 more")));
}

}  // namespace
}  // namespace spotlight
