#include "plan/staleness.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

// `seeds` control seeds an iteration whose explored and fresh rewards correlate with `rho` within a prompt; prompts
// differ by far more.
void AddSeeds(StalenessEstimate& estimate, std::uint32_t iterations, std::uint32_t seeds, double rho,
              std::uint32_t first = 0) {
  for (std::uint32_t i = first; i < first + iterations; ++i) {
    for (std::uint32_t s = 0; s < seeds; ++s) {
      std::vector<float> z(4);
      FillNormal(StreamKey({i, s}), 0, z);
      const double prompt = 10 * z[0];
      const double fresh = rho * z[1] + std::sqrt(1 - rho * rho) * z[2];
      estimate.Add({i, prompt + z[1], prompt + fresh, prompt});
    }
  }
}

TEST(Staleness, FindsTheCorrelationWithinPrompts) {
  StalenessEstimate estimate;
  AddSeeds(estimate, 50, 8, 0.85);
  const Staleness staleness = estimate.Estimate();
  EXPECT_EQ(staleness.seeds, 400);
  EXPECT_NEAR(staleness.rho, 0.85, 0.04);
  EXPECT_LT(staleness.interval.low, staleness.rho);
  EXPECT_GT(staleness.interval.high, staleness.rho);
  EXPECT_NEAR(staleness.interval.high - staleness.interval.low, 2 * 1.96 * (1 - 0.85 * 0.85) / 20, 0.015);
  EXPECT_FALSE(staleness.harmful);
}

TEST(Staleness, WarnsOnlyWhenTheWholeIntervalIsBelowTheBound) {
  StalenessEstimate estimate;
  AddSeeds(estimate, 50, 4, 0.2);
  EXPECT_TRUE(estimate.Estimate().harmful);
  StalenessEstimate unsure;
  AddSeeds(unsure, 50, 1, 0.4);
  EXPECT_LT(unsure.Estimate().rho, 0.5);
  EXPECT_GT(unsure.Estimate().interval.high, 0.5);
  EXPECT_FALSE(unsure.Estimate().harmful);
}

TEST(Staleness, ForgetsWhatIsOlderThanItsWindow) {
  StalenessEstimate estimate({.window = 20});
  AddSeeds(estimate, 50, 4, 0.95);
  AddSeeds(estimate, 20, 4, 0, 50);
  const Staleness staleness = estimate.Estimate();
  EXPECT_EQ(staleness.seeds, 80);
  EXPECT_TRUE(staleness.harmful);
}

TEST(Staleness, NoVerdictWithoutEvidence) {
  StalenessEstimate estimate;
  AddSeeds(estimate, 29, 1, 0);
  EXPECT_TRUE(std::isnan(estimate.Estimate().rho));
  EXPECT_FALSE(estimate.Estimate().harmful);
  StalenessEstimate constant;
  for (std::uint32_t i = 0; i < 40; ++i) constant.Add({i, 1, 1, 1});
  EXPECT_TRUE(std::isnan(constant.Estimate().rho));
  EXPECT_FALSE(constant.Estimate().harmful);
}

TEST(Staleness, LeavesOutUnscoredSeeds) {
  StalenessEstimate estimate;
  estimate.Add({1, 1, std::numeric_limits<double>::quiet_NaN(), 1});
  estimate.Add({1, std::numeric_limits<double>::infinity(), 1, 1});
  EXPECT_EQ(estimate.Estimate().seeds, 0);
  EXPECT_TRUE(estimate.State().empty());
}

TEST(Staleness, StateGivesTheSameEstimate) {
  StalenessEstimate estimate;
  AddSeeds(estimate, 60, 2, 0.6);
  StalenessEstimate copy;
  copy.Restore(estimate.State());
  EXPECT_EQ(copy.State(), estimate.State());
  EXPECT_EQ(copy.Estimate().rho, estimate.Estimate().rho);
  EXPECT_EQ(copy.Estimate().interval.low, estimate.Estimate().interval.low);
  EXPECT_THROW(copy.Add({3, 1, 1, 1}), InternalError);  // before the last
  EXPECT_THROW(copy.Restore(std::vector<double>{1, 2}), InternalError);
}

}  // namespace
}  // namespace spotlight
