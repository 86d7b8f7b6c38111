#include "schedule/commit_interval.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kLossesPerSecond = 0.6 / 3600;

TEST(CommitInterval, EveryStepWhileThatIsCheap) {
  EXPECT_EQ(StepsBetweenCommits({0.3, 0.0015, kLossesPerSecond}, 10), 1) << "0.5 % exactly";
  EXPECT_EQ(StepsBetweenCommits({0.3, 0, kLossesPerSecond}, 10), 1);
  EXPECT_EQ(StepsBetweenCommits({0.3, 0.0001, 0}, 10), 1) << "even if nothing is ever lost";
}

TEST(CommitInterval, YoungsIntervalForSmallSteps) {
  // C = 1 ms, lambda = 0.6 / h: sqrt(0.002 * 6000) = 3.46 s.
  EXPECT_EQ(StepsBetweenCommits({0.1, 0.001, kLossesPerSecond}, 100), 35);
  EXPECT_EQ(StepsBetweenCommits({0.1, 0.001, kLossesPerSecond}, 10), 10) << "at least once a request";
  EXPECT_EQ(StepsBetweenCommits({0.1, 0.001, 0}, 100), 100) << "no losses";
}

TEST(CommitInterval, NeverAboveTheAllowedOverhead) {
  // Losses every 10 ms would ask for a commit every step, at 10 %.
  EXPECT_EQ(StepsBetweenCommits({0.01, 0.001, 100}, 100), 20);
  for (const double step : {0.001, 0.01, 0.1, 1.0}) {
    for (const double commit : {0.0, 1e-5, 1e-3, 0.1}) {
      for (const double losses : {0.0, 1e-4, 0.1, 10.0}) {
        const int steps = StepsBetweenCommits({step, commit, losses}, 1'000'000);
        ASSERT_GE(steps, 1);
        ASSERT_LE(commit / (steps * step), kCommitOverhead * (1 + 1e-9));
      }
    }
  }
}

TEST(CommitInterval, ValuesOutOfRangeAreABug) {
  EXPECT_THROW(StepsBetweenCommits({0, 0.001, 0}, 10), InternalError);
  EXPECT_THROW(StepsBetweenCommits({1, 0.001, std::nan("")}, 10), InternalError);
  EXPECT_THROW(StepsBetweenCommits({1, 0.001, 0}, 0), InternalError);
}

}  // namespace
}  // namespace spotlight
