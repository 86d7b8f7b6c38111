#include "plan/iteration_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spotlight {
namespace {

using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class IterationPlanTest : public testing::Test {
 protected:
  IterationPlanTest() {
    config_.group = {.prompts = 2, .images = 2};
    config_.explore.seeds = 4;
    config_.explore.control = 0;
    config_.sampler.window_size = 3;
  }
  IterationPlan Plan(std::uint32_t iteration) const { return PlanIteration(config_, sampler_, iteration); }

  // Scored seeds of the plan's first prompt: reward i for the i-th of `seeds`.
  static std::vector<Sample> Scored(const std::vector<Request>& requests, const std::vector<double>& rewards) {
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      samples.push_back({.request = requests.at(i), .reward = rewards[i], .latents = {static_cast<float>(i)}});
    }
    return samples;
  }

  Config config_;
  PromptSampler sampler_{std::vector<Prompt>(5), {}, 1};
};

TEST_F(IterationPlanTest, ExplorationGoesSeedByTheSeedOverAllPrompts) {
  const IterationPlan plan = Plan(3);
  const std::vector<Request> requests = ExploreRequests(plan, 3, 6, 2);
  ASSERT_EQ(requests.size(), 6U);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].kind, RequestKind::kExplore);
    EXPECT_EQ(static_cast<int>(requests[i].prompt_index), plan.prompts[i % 2]);
    EXPECT_EQ(requests[i].seed, requests[i - i % 2].seed);
    EXPECT_EQ(requests[i].iteration, 3U);
    EXPECT_EQ(requests[i].weight_version, 2U);
    EXPECT_EQ(requests[i].real_steps, 6U);
    EXPECT_EQ(requests[i].window_end, plan.window_end);
  }
  EXPECT_NE(requests[0].seed, requests[2].seed);
}

TEST_F(IterationPlanTest, ChoosesTheContrastAndFillsUpWithSeedsThatNobodyTried) {
  IterationPlan plan = Plan(0);
  const std::vector<Request> requests = ExploreRequests(plan, 4, 0, 0);
  // In turn: prompt 0, prompt 1. Prompt 0 earns 1, 5, 2, 3; of prompt 1 only one seed was scored in time.
  const std::vector<Sample> explored = {
      {.request = requests[6], .reward = 3}, {.request = requests[0], .reward = 1},
      {.request = requests[2], .reward = 5}, {.request = requests[4], .reward = 2},
      {.request = requests[3], .reward = 9}, {.request = requests[5], .reward = kNan}};
  ChooseSeeds(config_, explored, plan);
  EXPECT_THAT(plan.groups[0].seeds, ElementsAre(requests[0].seed, requests[2].seed));
  EXPECT_THAT(plan.groups[0].explored, ElementsAre(1, 5));
  EXPECT_THAT(plan.groups[0].control, ElementsAre(0, 0));
  EXPECT_DOUBLE_EQ(plan.groups[0].pool_mean, 2.75);
  EXPECT_DOUBLE_EQ(plan.groups[0].pool_std, std::sqrt((1.75 * 1.75 + 2.25 * 2.25 + 0.75 * 0.75 + 0.25 * 0.25) / 4));
  ASSERT_EQ(plan.groups[1].seeds.size(), 2U);
  EXPECT_EQ(plan.groups[1].seeds[0], requests[3].seed);
  EXPECT_TRUE(std::isnan(plan.groups[1].explored[1]));
  for (const Request& request : requests) EXPECT_NE(plan.groups[1].seeds[1], request.seed) << "it was tried";
  EXPECT_DOUBLE_EQ(PoolOf(config_, plan.groups[0]).mean, 2.75);
  EXPECT_TRUE(std::isnan(PoolOf(config_, plan.groups[1]).mean)) << "one seed is no yardstick for two";
}

TEST_F(IterationPlanTest, NothingExploredLeavesFreshSeedsAndUnknownPools) {
  IterationPlan plan = Plan(0);
  ChooseSeeds(config_, {}, plan);
  for (const SeedChoice& group : plan.groups) {
    EXPECT_EQ(group.seeds.size(), 2U);
    EXPECT_TRUE(std::isnan(group.pool_mean) && std::isnan(group.pool_std));
    EXPECT_THAT(group.control, ElementsAre(0, 0));
  }
}

TEST_F(IterationPlanTest, ControlSeedsAreMarkedAndTheSameEachTime) {
  config_.explore.control = 1;  // all of them
  IterationPlan plan = Plan(5), again = Plan(5);
  const std::vector<Sample> explored = Scored(ExploreRequests(plan, 4, 0, 0), {0, 0, 1, 1, 2, 2, 3, 3});
  ChooseSeeds(config_, explored, plan);
  ChooseSeeds(config_, explored, again);
  for (std::size_t p = 0; p < 2; ++p) {
    EXPECT_THAT(plan.groups[p].control, ElementsAre(1, 1));
    EXPECT_EQ(plan.groups[p].seeds, again.groups[p].seeds);
  }
}

TEST_F(IterationPlanTest, OnTheCriticalPathRolloutsThemselvesAreChosen) {
  config_.explore.when = ExploreConfig::When::kCritical;
  IterationPlan plan = Plan(1);
  const std::vector<Request> requests = RolloutRequests(plan, 1);
  ASSERT_EQ(requests.size(), 8U);
  std::vector<Sample> rollouts = Scored(requests, {1, 5, 2, 3, /* prompt 1: */ kNan, 4, kNan, kNan});
  ChooseRollouts(config_, rollouts, plan);
  ASSERT_EQ(rollouts.size(), 4U);
  EXPECT_EQ(rollouts[0].request.seed, requests[0].seed);
  EXPECT_EQ(rollouts[1].request.seed, requests[1].seed);
  EXPECT_EQ(rollouts[2].request.seed, requests[5].seed);
  EXPECT_TRUE(std::isnan(rollouts[3].reward)) << "fills up the group; nobody trains on it";
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rollouts[i].request.seed, plan.groups[i / 2].seeds[i % 2]);
    EXPECT_FALSE(rollouts[i].latents.empty()) << "moved, not lost";
    EXPECT_TRUE(std::isnan(plan.groups[i / 2].explored[i % 2])) << "nothing to compare the fresh rewards with";
  }
  EXPECT_DOUBLE_EQ(PoolOf(config_, plan.groups[0]).mean, 2.75);
}

}  // namespace
}  // namespace spotlight
