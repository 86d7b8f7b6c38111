#include "plan/bootstrap.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Bootstrap, CoversTheMeanAsOftenAsItSays) {
  constexpr int kTrials = 400;
  constexpr int kItems = 40;
  int covered = 0;
  double width = 0;
  for (std::uint64_t trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (std::uint64_t i = 0; i < kItems; ++i) values.push_back(UniformDouble(trial, i));
    const Interval interval = MeanInterval(values, trial, 400);
    covered += interval.low <= 0.5 && 0.5 <= interval.high ? 1 : 0;
    width += (interval.high - interval.low) / kTrials;
  }
  EXPECT_GT(covered, 0.90 * kTrials);
  EXPECT_LT(covered, 0.98 * kTrials);
  EXPECT_NEAR(width, 2 * 1.96 * std::sqrt(1.0 / 12 / kItems), 0.01);
}

TEST(Bootstrap, EqualKeysGiveEqualIntervals) {
  const std::vector<double> values = {1, 2, 3, 4, 7};
  EXPECT_EQ(MeanInterval(values, 1).low, MeanInterval(values, 1).low);
  EXPECT_NE(MeanInterval(values, 1, 10).high, MeanInterval(values, 2, 10).high);
}

TEST(Bootstrap, WithoutSpreadTheIntervalIsAPoint) {
  const Interval interval = MeanInterval(std::vector<double>{0.5, 0.5, kNan, 0.5}, 1);
  EXPECT_EQ(interval.low, 0.5);
  EXPECT_EQ(interval.high, 0.5);
}

TEST(Bootstrap, UndefinedStatisticsGiveNoInterval) {
  EXPECT_TRUE(std::isnan(MeanInterval(std::vector<double>{kNan}, 1).low));
  EXPECT_TRUE(std::isnan(MeanInterval({}, 1).high));
  EXPECT_TRUE(std::isnan(PercentileBootstrap(
                             3, [](auto) { return kNan; }, 1)
                             .low));
  EXPECT_THROW(PercentileBootstrap(
                   0, [](auto) { return 1.0; }, 1),
               InternalError);
}

}  // namespace
}  // namespace spotlight
