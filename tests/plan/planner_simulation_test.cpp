// The planner and its baselines in a world whose truth is known (exploration_world.hpp).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "exploration_world.hpp"

namespace spotlight {
namespace {

constexpr int kRuns = 20;
constexpr std::uint32_t kIterations = 300;

// Share of the best feasible arm's spread that is lost, a mean over runs and iterations: 0 is the best fixed arm,
// chosen with hindsight.
double Regret(BanditOptions bandit, bool dominated = false) {
  double regret = 0;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    const World world{.seed = run};
    bandit.run_seed = run;
    ExplorationPlanner planner = WorldPlanner(bandit, dominated);
    for (std::uint32_t i = 1; i <= kIterations; ++i) {
      regret += 1 - World::Truth(world.Play(planner, i)) / world.Best();
    }
  }
  return regret / (kRuns * kIterations);
}

TEST(PlannerSimulation, LosesLittleAgainstTheBestFixedArm) {
  const double ucb = Regret({.rule = ArmRule::kUcb});
  const double round_robin = Regret({.rule = ArmRule::kRoundRobin});
  EXPECT_LT(ucb, 0.016);
  EXPECT_LT(ucb, 0.6 * round_robin);
  EXPECT_LT(Regret({.rule = ArmRule::kThompson}), 0.7 * round_robin);
  EXPECT_LT(Regret({.rule = ArmRule::kGreedy}), 0.8 * round_robin);
  EXPECT_GT(round_robin, 0.02);  // there is something to lose
}

// Why dominated arms do not compete, and why the bonus is so narrow: docs/algorithm.md has the figures.
TEST(PlannerSimulation, DominatedArmsAndAWideBonusCost) {
  const double ucb = Regret({.rule = ArmRule::kUcb});
  EXPECT_GT(Regret({.rule = ArmRule::kUcb}, true), 1.4 * ucb);
  EXPECT_GT(Regret({.rule = ArmRule::kUcb, .ucb = 0.3, .discount = 0.95}), 1.4 * ucb);
  EXPECT_GT(Regret({.rule = ArmRule::kUcb, .ucb = 0.3, .discount = 0.95}, true), 4 * ucb);
  EXPECT_LT(Regret({.rule = ArmRule::kUcb}, true), 0.6 * Regret({.rule = ArmRule::kRoundRobin}, true));
}

TEST(PlannerSimulation, FollowsTheCapacity) {
  double before = 0;
  double after = 0;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    World world{.seed = run};
    ExplorationPlanner planner = WorldPlanner({.rule = ArmRule::kUcb, .run_seed = run});
    for (std::uint32_t i = 1; i <= 2 * kIterations; ++i) {
      world.slots = i <= kIterations ? 16 : 8;
      const Arm arm = world.Play(planner, i);
      ASSERT_NE(arm, Arm{}) << "iteration " << i;
      if (i > 1) {  // the first one is played to learn what it costs
        EXPECT_LE(world.Seconds(arm), World::kTrain) << "iteration " << i;
      }
      const double share = World::Truth(arm) / world.Best();
      if (i > kIterations / 2 && i <= kIterations) before += share;
      if (i > 3 * kIterations / 2) after += share;
    }
  }
  EXPECT_GT(before / (kRuns * kIterations / 2), 0.98);
  EXPECT_GT(after / (kRuns * kIterations / 2), 0.98);
}

TEST(PlannerSimulation, DecidesAlikeAfterResuming) {
  for (const ArmRule rule : {ArmRule::kUcb, ArmRule::kThompson, ArmRule::kGreedy, ArmRule::kRoundRobin}) {
    constexpr std::uint32_t kLast = 60;
    World world{.seed = 3};
    const auto slots = [](std::uint32_t i) { return i % 17 < 9 ? 16 : 7; };
    std::vector<std::vector<double>> states;
    std::vector<Arm> arms;
    ExplorationPlanner planner = WorldPlanner({.rule = rule, .run_seed = 3});
    for (std::uint32_t i = 1; i <= kLast; ++i) {
      states.push_back(planner.State());
      world.slots = slots(i);
      arms.push_back(world.Play(planner, i));
    }
    for (std::uint32_t from = 1; from <= kLast; ++from) {
      ExplorationPlanner resumed = WorldPlanner({.rule = rule, .run_seed = 3});
      resumed.Restore(states[from - 1]);
      for (std::uint32_t i = from; i <= kLast; ++i) {
        world.slots = slots(i);
        ASSERT_EQ(world.Play(resumed, i), arms[i - 1]) << "saved before " << from << ", iteration " << i;
      }
      EXPECT_EQ(resumed.State(), planner.State());
    }
  }
}

}  // namespace
}  // namespace spotlight
