#include "driver/exploration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "plan/prompt_sampler.hpp"

namespace spotlight {
namespace {

using testing::HasSubstr;

// 2 prompts, groups of 2, at most 8 seeds, 10 steps. A real pass of a request takes 0.1 s, training 10 s.
class ExplorationTest : public testing::Test {
 protected:
  ExplorationTest() {
    config_.group = {.prompts = 2, .images = 2};
    config_.explore.seeds = 8;
    config_.explore.control = 0.5;
    for (std::uint32_t i = 0; i < 40; ++i) plans_.push_back(PlanIteration(config_, sampler_, i));
  }

  static BatchTimes Batch() {
    return {.degree = 1,
            .requests = 2,
            .real_passes = 10,
            .cached_passes = 10,
            .real_seconds = 2,
            .cached_seconds = 0.02,
            .decode_seconds = 0.01,
            .reward_seconds = 0.01};
  }
  // Explores for iteration `i` and rolls it out; the arm.
  Arm Turn(Exploration& exploration, std::uint32_t i, double train_seconds = 10) {
    Exploration::Values values;
    const std::vector<Request> requests = exploration.Plan(plans_[i], {1, 1}, i - 1);
    std::vector<Sample> explored;
    for (const Request& request : requests) {
      explored.push_back({.request = request, .reward = static_cast<double>(request.seed % 7)});
    }
    exploration.Observe({.train_seconds = train_seconds,
                         .push_seconds = 0.1,
                         .explored = {Batch()},
                         .slots = 2,
                         .scored = explored.size()});
    exploration.Choose(std::move(explored), plans_[i], values);
    const Arm arm{static_cast<int>(values.at("explore_seeds")), static_cast<int>(values.at("explore_steps"))};
    EXPECT_EQ(requests.size(), static_cast<std::size_t>(2 * arm.seeds));
    const std::vector<double> rewards = {0, 1.0 * arm.seeds, 0, 1.0 * arm.steps};
    const std::vector<int> groups = {0, 0, 1, 1};
    exploration.Credit(plans_[i], rewards, GroupAdvantages(rewards, groups, 2, {}));
    return arm;
  }

  Config config_;
  PromptSampler sampler_{std::vector<Prompt>(5), {}, 1};
  std::vector<IterationPlan> plans_;
};

TEST_F(ExplorationTest, AFixedBudgetIsTheSameWhateverWasMeasured) {
  config_.explore.budget = ExploreConfig::Budget::kFixed;
  config_.explore.steps = 6;
  Exploration exploration(config_, nullptr, {});
  for (std::uint32_t i = 1; i < 4; ++i) EXPECT_EQ(Turn(exploration, i, 0.001), (Arm{8, 6}));
  const std::vector<Request> requests = exploration.Plan(plans_[4], {}, 3);
  ASSERT_EQ(requests.size(), 16U) << "also where trainers must do it";
  EXPECT_EQ(requests[0].real_steps, 6U);
  EXPECT_TRUE(exploration.TakeDecisions(3).empty());
}

TEST_F(ExplorationTest, PlansOnlyWhatFitsBesideTraining) {
  Exploration exploration(config_, nullptr, {});
  EXPECT_TRUE(exploration.Plan(plans_[1], {}, 0).empty()) << "nobody explores";
  EXPECT_EQ(Turn(exploration, 1, 4), (Arm{2, 3})) << "the cheapest, to learn what it costs";
  std::vector<Arm> played;
  for (std::uint32_t i = 2; i < 30; ++i) {
    const Arm arm = Turn(exploration, i, 4);
    const std::vector<DecisionRow> rows = exploration.TakeDecisions(i - 1);
    const auto chosen = std::find_if(rows.begin(), rows.end(), [](const DecisionRow& row) { return row.chosen; });
    ASSERT_NE(chosen, rows.end());
    EXPECT_EQ(chosen->seeds, arm.seeds);
    EXPECT_TRUE(chosen->feasible);
    EXPECT_LE(chosen->cost_s, chosen->budget_s);
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(), [](const DecisionRow& row) { return row.chosen; }), 1);
    EXPECT_TRUE(exploration.TakeDecisions(i).empty()) << "of one iteration once";
    EXPECT_FALSE(exploration.TakeExplored().empty());
    EXPECT_TRUE(exploration.TakeExplored().empty());
    played.push_back(arm);
  }
  // Two groups have 16 requests of 8 seeds done in 8 turns of 1 s with all steps: over the 4 s there are.
  EXPECT_EQ(std::count(played.begin(), played.end(), Arm{8, 10}), 0);
  // With 4 of their 10 steps, 3.3 s; and so for fewer seeds with more steps.
  EXPECT_GT(std::count(played.begin(), played.end(), Arm{8, 4}), 0);
  EXPECT_GT(std::count(played.begin(), played.end(), Arm{4, 8}), 0);
}

TEST_F(ExplorationTest, RolloutsTellWhatExplorationCostsOnlyUntilItIsKnown) {
  config_.explore.cache = ExploreConfig::Cache::kTea;
  config_.explore.planner = ExploreConfig::Planner::kFixed;
  config_.explore.steps = 0;
  const auto cost = [&](const std::vector<Exploration::Measured>& turns) {
    Exploration exploration(config_, nullptr, {});
    for (const Exploration::Measured& measured : turns) exploration.Observe(measured);
    exploration.Plan(plans_[1], {1}, 0);
    return exploration.TakeDecisions(0).at(0).cost_s;
  };
  const BatchTimes rollouts{.requests = 4, .real_passes = 10, .real_seconds = 40};  // 1 s a pass
  const BatchTimes explored{
      .requests = 4, .real_passes = 4, .cached_passes = 6, .real_seconds = 16, .cached_seconds = 4};  // 0.5 s
  const double passes = 2 * 8 * 10;
  EXPECT_DOUBLE_EQ(cost({{.train_seconds = 9, .others = {rollouts}}}), passes);
  EXPECT_DOUBLE_EQ(cost({{.train_seconds = 9, .explored = {explored}, .others = {rollouts}}}), 0.5 * passes);
  EXPECT_DOUBLE_EQ(cost({{.train_seconds = 9, .others = {rollouts}},
                         {.train_seconds = 9, .explored = {explored}, .others = {rollouts}},
                         {.train_seconds = 9, .others = {rollouts}}}),
                   0.5 * passes);
}

TEST_F(ExplorationTest, OnlyWhoHadAllItsSlotsHasOverrun) {
  const auto budget = [&](std::size_t slots, bool departed) {
    Exploration exploration(config_, nullptr, {});
    exploration.Plan(plans_[1], {1, 1}, 0);
    exploration.Observe({.train_seconds = 10, .explored = {Batch()}, .slots = slots, .departed = departed});
    exploration.Plan(plans_[2], {1, 1}, 1);
    return exploration.TakeDecisions(1).at(0).budget_s;
  };
  EXPECT_DOUBLE_EQ(budget(2, false), 10 * (1 - 0.1));
  EXPECT_DOUBLE_EQ(budget(1, false), 10 * (1 - 0.05));
  EXPECT_DOUBLE_EQ(budget(2, true), 10 * (1 - 0.05)) << "another one came for it";
}

TEST_F(ExplorationTest, ACheckpointGoesOnWithTheSameDecisions) {
  Exploration whole(config_, nullptr, {});
  for (std::uint32_t i = 1; i < 12; ++i) Turn(whole, i);
  RunState state;
  whole.Save(state);
  Exploration resumed(config_, nullptr, state);
  RunState again;
  resumed.Save(again);
  EXPECT_EQ(again.planner, state.planner);
  EXPECT_EQ(again.staleness, state.staleness);
  EXPECT_FALSE(state.staleness.empty());
  std::vector<IterationPlan> plans = plans_;
  std::vector<Arm> first, second;
  for (std::uint32_t i = 12; i < 30; ++i) first.push_back(Turn(whole, i));
  plans_ = plans;
  for (std::uint32_t i = 12; i < 30; ++i) second.push_back(Turn(resumed, i));
  EXPECT_EQ(first, second);
}

TEST_F(ExplorationTest, AReplayExploresWhatWasRecorded) {
  Recording recording{.path = "a run.h5"};
  const std::int64_t prompt = plans_[3].prompts[1];
  recording.explored[2] = {{.step = 2, .prompt_index = prompt, .seed = 77, .real_steps = 4}};
  config_.explore.replay = recording.path;
  Exploration exploration(config_, &recording, {});
  const std::vector<Request> requests = exploration.Plan(plans_[3], {1}, 2);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].seed, 77U);
  EXPECT_EQ(requests[0].real_steps, 4U);
  EXPECT_EQ(requests[0].iteration, 3U);
  EXPECT_EQ(requests[0].weight_version, 2U);
  Exploration::Values values;
  exploration.Choose({}, plans_[3], values);
  EXPECT_FALSE(values.contains("explore_seeds")) << "no arm was played";
  EXPECT_FALSE(values.contains("explore_steps"));
  EXPECT_TRUE(exploration.Plan(plans_[5], {1}, 4).empty()) << "nothing was explored then";
  recording.explored[6] = {{.step = 6, .prompt_index = 99, .seed = 1}};
  try {
    exploration.Plan(plans_[7], {1}, 6);
    FAIL() << "prompt 99 is not drawn";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a run.h5"));
    EXPECT_THAT(error.what(), HasSubstr("prompt 99"));
  }
}

TEST_F(ExplorationTest, ChanceKeptSeedsTellWhenExploredRewardsMeanNothing) {
  config_.explore.budget = ExploreConfig::Budget::kFixed;
  config_.explore.control = 1;
  for (const bool useful : {true, false}) {
    Exploration exploration(config_, nullptr, {});
    double r = 0;
    for (std::uint32_t i = 1; i < 40; ++i) {
      Exploration::Values values;
      std::vector<Sample> explored;
      for (const Request& request : exploration.Plan(plans_[i], {1}, i - 1)) {
        explored.push_back({.request = request, .reward = static_cast<double>((request.seed * 7919) % 13)});
      }
      exploration.Choose(std::move(explored), plans_[i], values);
      std::vector<double> rewards;
      for (const SeedChoice& group : plans_[i].groups) {
        for (std::size_t s = 0; s < 2; ++s) {
          rewards.push_back(useful ? group.explored[s] : static_cast<double>((group.seeds[s] * 104729) % 11));
        }
      }
      const std::vector<int> groups = {0, 0, 1, 1};
      exploration.Credit(plans_[i], rewards, GroupAdvantages(rewards, groups, 2, {}));
      exploration.JudgeStaleness(i, values);
      if (values.contains("explore_control_r")) r = values["explore_control_r"];
    }
    if (useful) {
      EXPECT_GT(r, 0.99);
    } else {
      EXPECT_LT(r, 0.5);
    }
  }
}

}  // namespace
}  // namespace spotlight
