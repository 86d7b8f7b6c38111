#include "plan/exploration_planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ExplorationPlanner Planner(ArmRule rule = ArmRule::kUcb, std::vector<Arm> arms = ArmGrid(8, 32, 10)) {
  return ExplorationPlanner({.bandit = {.rule = rule}, .arms = std::move(arms), .steps = 10});
}

// 0.1 s a pass and nothing else, so that an arm of one slot takes prompts * seeds * steps / 10 seconds.
void Measure(ExplorationPlanner& planner, double train_seconds, double push_seconds = 0) {
  planner.ObserveBatch({.requests = 1, .real_passes = 10, .real_seconds = 1, .cached_passes = 1});
  planner.ObserveTraining(train_seconds, push_seconds, false);
}

std::vector<Arm> Feasible(const Decision& decision) {
  std::vector<Arm> arms;
  for (const ArmOption& option : decision.options) {
    if (option.feasible) arms.push_back(option.arm);
  }
  return arms;
}

std::vector<Arm> Competing(const Decision& decision) {
  std::vector<Arm> arms;
  for (const ArmOption& option : decision.options) {
    if (!std::isnan(option.score)) arms.push_back(option.arm);
  }
  return arms;
}

TEST(Planner, SmallestArmWhileTimesAreUnknown) {
  ExplorationPlanner planner = Planner();
  Decision decision = planner.Decide(2, {{1, 4}}, 1);
  EXPECT_EQ(decision.chosen, (Arm{8, 3}));
  EXPECT_TRUE(std::isnan(decision.budget));
  EXPECT_THAT(decision.options, SizeIs(25));
  EXPECT_TRUE(std::isnan(decision.options[0].seconds));
  planner.ObserveTraining(1000, 0, false);
  decision = planner.Decide(2, {{1, 4}}, 1);
  EXPECT_EQ(decision.chosen, (Arm{8, 3}));
  EXPECT_DOUBLE_EQ(decision.budget, 950);
  ExplorationPlanner other = Planner();
  other.ObserveBatch({.requests = 1, .real_passes = 10, .real_seconds = 1});
  EXPECT_EQ(other.Decide(2, {{1, 4}}, 1).chosen, (Arm{8, 3}));
}

TEST(Planner, OnlyArmsWithinTheBudgetCompete) {
  for (const bool dominated : {false, true}) {
    ExplorationPlanner planner({.arms = ArmGrid(8, 32, 10), .dominated = dominated});
    Measure(planner, 7, 0.5);  // budget 0.95 * 6.5
    const Decision decision = planner.Decide(2, {{1, 2}}, 3);
    EXPECT_EQ(decision.iteration, 3);
    EXPECT_DOUBLE_EQ(decision.budget, 0.95 * 6.5);
    const std::vector<Arm> feasible = {{8, 3}, {8, 4}, {8, 6}, {12, 3}, {12, 4}, {16, 3}};
    EXPECT_EQ(Feasible(decision), feasible);
    EXPECT_EQ(Competing(decision), dominated ? feasible : (std::vector<Arm>{{8, 6}, {12, 4}, {16, 3}}));
    for (const ArmOption& option : decision.options) {
      EXPECT_DOUBLE_EQ(option.seconds, option.arm.seeds * option.arm.steps / 10.0);
      EXPECT_EQ(option.feasible, option.seconds <= decision.budget);
    }
  }
}

TEST(Planner, WhereAllFitOnlyTheLargestCompetes) {
  ExplorationPlanner planner = Planner();
  Measure(planner, 1000);
  EXPECT_THAT(Competing(planner.Decide(2, {{1, 2}}, 1)), ElementsAre(Arm{32, 10}));
}

TEST(Planner, TriesEachArmThatCompetesOnceCheapestFirst) {
  ExplorationPlanner planner({.arms = ArmGrid(8, 32, 10), .dominated = true});
  Measure(planner, 6);
  std::vector<Arm> played;
  for (std::uint32_t i = 1; i <= 5; ++i) {
    played.push_back(planner.Decide(2, {{1, 2}}, i).chosen);
    planner.Credit({i, played.back(), 100, 100, 1});
  }
  EXPECT_THAT(played, ElementsAre(Arm{8, 3}, Arm{8, 4}, Arm{12, 3}, Arm{8, 6}, Arm{12, 4}));
}

TEST(Planner, NoArmWhereNoneFitsOrNobodyExplores) {
  ExplorationPlanner planner = Planner();
  EXPECT_EQ(planner.Decide(2, {}, 1).chosen, Arm{});
  EXPECT_EQ(planner.Decide(2, {{1, 0}}, 1).chosen, Arm{});
  Measure(planner, 2);
  const Decision decision = planner.Decide(2, {{1, 2}}, 1);
  EXPECT_EQ(decision.chosen, Arm{});
  EXPECT_THAT(Feasible(decision), SizeIs(0));
  planner.Credit({1, Arm{}, 0, 0, kNan});  // nothing was explored: nothing to credit
  EXPECT_EQ(planner.Decide(2, {{1, 4}}, 2).chosen, (Arm{8, 4}));
  ExplorationPlanner slow = Planner();
  Measure(slow, 1, 5);  // the push takes longer than training
  EXPECT_EQ(slow.Decide(2, {{1, 1000}}, 1).budget, 0);
  EXPECT_EQ(slow.Decide(2, {{1, 1000}}, 1).chosen, Arm{});
}

TEST(Planner, TheFixedArmIsPlayedWhetherItFitsOrNot) {
  ExplorationPlanner planner = Planner(ArmRule::kFixed, {{24, 10}});
  Measure(planner, 1);
  const Decision decision = planner.Decide(2, {{1, 1}}, 1);
  EXPECT_EQ(decision.chosen, (Arm{24, 10}));
  EXPECT_FALSE(decision.options[0].feasible);
  EXPECT_EQ(planner.Decide(2, {}, 1).chosen, Arm{});
}

TEST(Planner, TheMarginWidensAfterAnOverrunAndNarrowsSlowly) {
  ExplorationPlanner planner = Planner();
  Measure(planner, 10);
  const auto margin = [&] { return 1 - planner.Decide(2, {{1, 2}}, 1).budget / 10; };
  EXPECT_NEAR(margin(), 0.05, 1e-12);
  planner.ObserveTraining(10, 0, true);
  EXPECT_NEAR(margin(), 0.10, 1e-12);
  planner.ObserveTraining(10, 0, false);
  EXPECT_NEAR(margin(), 0.095, 1e-12);
  for (int i = 0; i < 100; ++i) planner.ObserveTraining(10, 0, false);
  EXPECT_NEAR(margin(), 0.05, 1e-4);
  for (int i = 0; i < 100; ++i) planner.ObserveTraining(10, 0, true);
  EXPECT_NEAR(margin(), 0.5, 1e-12);
}

TEST(Planner, AnArmCutBeforeHalfIsNotCredited) {
  ExplorationPlanner planner = Planner(ArmRule::kGreedy, {{8, 10}, {16, 6}});
  Measure(planner, 100);
  planner.Credit({1, {8, 10}, 16, 16, 0.5});
  planner.Credit({2, {16, 6}, 32, 15, 0.9});
  EXPECT_EQ(planner.Decide(2, {{1, 2}}, 3).chosen, (Arm{8, 10}));
  planner.Credit({3, {16, 6}, 32, 16, 0.9});
  EXPECT_EQ(planner.Decide(2, {{1, 2}}, 4).chosen, (Arm{16, 6}));
}

TEST(Planner, APartOfTheSeedsIsAPartOfAPull) {
  ExplorationPlanner planner = Planner(ArmRule::kGreedy, {{8, 6}, {16, 4}});
  Measure(planner, 100);
  planner.Credit({1, {16, 4}, 32, 32, 0.5});
  planner.Credit({2, {8, 6}, 16, 16, 0.9});
  planner.Credit({3, {8, 6}, 16, 8, 0});  // mean 0.98 * 0.9 / 1.48, not 0.98 * 0.9 / 1.98
  EXPECT_EQ(planner.Decide(2, {{1, 2}}, 4).chosen, (Arm{8, 6}));
}

TEST(Planner, OptionsFollowTheInput) {
  Config config;
  config.group.images = 4;
  config.sampler.steps = 20;
  config.explore.seeds = 10;
  config.explore.ucb = 0.7;
  config.explore.margin = 0.2;
  config.run.seed = 9;
  PlannerOptions options = PlannerOptions::From(config);
  EXPECT_EQ(options.arms, ArmGrid(4, 10, 20));
  EXPECT_EQ(options.steps, 20);
  EXPECT_EQ(options.margin, 0.2);
  EXPECT_EQ(options.bandit.ucb, 0.7);
  EXPECT_EQ(options.bandit.run_seed, 9);
  config.explore.cache = ExploreConfig::Cache::kTea;
  EXPECT_THAT(PlannerOptions::From(config).arms, ElementsAre(Arm{4, 20}, Arm{6, 20}, Arm{8, 20}, Arm{10, 20}));
  config.explore.planner = ArmRule::kFixed;
  EXPECT_THAT(PlannerOptions::From(config).arms, ElementsAre(Arm{10, 20}));
  config.explore.steps = 6;
  EXPECT_THAT(PlannerOptions::From(config).arms, ElementsAre(Arm{10, 6}));
}

TEST(Planner, RefusesWhatIsNoOutcome) {
  ExplorationPlanner planner = Planner();
  EXPECT_THROW(planner.Credit({1, {8, 3}, 8, 8, kNan}), InternalError);
  EXPECT_THROW(planner.Credit({1, {8, 3}, 8, 8, std::numeric_limits<double>::infinity()}), InternalError);
  EXPECT_THROW(planner.Credit({1, {8, 5}, 8, 8, 1}), InternalError);
  EXPECT_THROW(planner.Credit({1, {8, 3}, 8, 9, 1}), InternalError);
  EXPECT_THROW(planner.Credit({1, {8, 3}, 0, 0, 1}), InternalError);
  EXPECT_THROW(planner.ObserveTraining(-1, 0, false), InternalError);
  EXPECT_THROW(planner.ObserveTraining(1, kNan, false), InternalError);
}

TEST(Planner, ResumesWithAnotherGrid) {
  ExplorationPlanner planner = Planner(ArmRule::kGreedy, {{8, 6}, {16, 4}});
  Measure(planner, 100);
  planner.ObserveTraining(100, 0, true);
  planner.Credit({1, {8, 6}, 16, 16, 0.9});
  planner.Credit({2, {16, 4}, 32, 32, 0.5});
  ExplorationPlanner other = Planner(ArmRule::kGreedy, {{4, 10}, {8, 6}});
  other.Restore(planner.State());
  const Decision decision = other.Decide(2, {{1, 2}}, 3);
  EXPECT_EQ(decision.chosen, (Arm{4, 10}));  // never tried
  EXPECT_DOUBLE_EQ(decision.budget, 90);
  other.Credit({3, {4, 10}, 8, 8, 0.1});
  EXPECT_EQ(other.Decide(2, {{1, 2}}, 4).chosen, (Arm{8, 6}));
  EXPECT_THROW(other.Restore(std::vector<double>{1, 2, 3}), InternalError);
  EXPECT_THROW(other.Restore(std::vector<double>{1, 0, 0.05, 9}), InternalError);
}

// Whatever comes, in any order: the choice is feasible or nothing, and every number of a feasible arm is one.
TEST(Planner, HoldsItsPromisesForAnyInput) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::uint64_t index = 0;
    const auto below = [&](std::uint64_t bound) { return static_cast<int>(UniformInt(trial, index++, bound)); };
    const auto uniform = [&] { return UniformDouble(trial, index++); };
    ExplorationPlanner planner =
        Planner(static_cast<ArmRule>(below(4)), ArmGrid(1 + below(9), 1 + below(60), 1 + below(30)));
    for (std::uint32_t i = 1; i < 40; ++i) {
      const SlotCounts slots = {{1, below(5)}, {2, below(3)}, {4, below(2)}};
      const Decision decision = planner.Decide(1 + below(20), slots, i);
      const bool chosen = decision.chosen != Arm{};
      const bool known = !std::isnan(decision.budget) && !std::isnan(decision.options[0].seconds);
      bool fits = false;
      for (const ArmOption& option : decision.options) {
        fits = fits || option.feasible;
        EXPECT_TRUE(option.arm != decision.chosen || !std::isnan(option.score));
        EXPECT_TRUE(option.arm != decision.chosen || option.feasible == known);
        EXPECT_TRUE(std::isnan(option.score) || option.feasible == known);
        EXPECT_TRUE(!option.feasible || option.seconds <= decision.budget);
        // What does not compete is matched by what does.
        if (option.feasible && std::isnan(option.score)) {
          const std::vector<Arm> competing = Competing(decision);
          EXPECT_TRUE(std::any_of(competing.begin(), competing.end(), [&](const Arm& arm) {
            return arm.seeds >= option.arm.seeds && arm.steps >= option.arm.steps;
          }));
        }
      }
      EXPECT_TRUE(!known || chosen == fits);
      if (chosen) {
        const auto wanted = static_cast<std::size_t>(decision.chosen.seeds);
        const std::size_t scored =
            std::min(wanted, static_cast<std::size_t>(uniform() * 1.5 * static_cast<double>(wanted)));
        planner.Credit({i, decision.chosen, wanted, scored, below(3) == 0 ? 0 : uniform()});
      }
      for (int reports = below(3); reports > 0; --reports) {
        planner.ObserveBatch(
            {1 << below(3), 1, 5, uniform() * (below(4) == 0 ? 0 : 0.1), 5, uniform() * 0.01, 0.01, 0});
      }
      if (below(4) > 0) planner.ObserveTraining(20 * uniform(), uniform(), below(4) == 0);
    }
  }
}

}  // namespace
}  // namespace spotlight
