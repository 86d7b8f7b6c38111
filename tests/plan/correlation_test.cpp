#include "plan/correlation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Rho(const std::vector<double>& x, const std::vector<double>& y) { return Spearman(x, y); }

TEST(Spearman, MonotoneIsOne) {
  EXPECT_DOUBLE_EQ(Rho({1, 2, 3, 4}, {1, 10, 100, 1000}), 1);
  EXPECT_DOUBLE_EQ(Rho({1, 2, 3, 4}, {4, 3, 2, -9}), -1);
}

TEST(Spearman, WithoutTies) {
  // 1 - 6 sum(d^2) / (n (n^2 - 1)), d = {0, 1, -1, 1, -1}: 1 - 24 / 120.
  EXPECT_DOUBLE_EQ(Rho({1, 2, 3, 4, 5}, {1, 3, 2, 5, 4}), 0.8);
}

TEST(Spearman, TiesShareTheirAverageRank) {
  // Ranks {0.5, 0.5, 2, 3} and {0, 1, 2, 3}: 4.5 / sqrt(4.5 * 5).
  EXPECT_DOUBLE_EQ(Rho({1, 1, 2, 3}, {1, 2, 3, 4}), 4.5 / std::sqrt(22.5));
}

TEST(Spearman, LeavesOutUnscoredPairs) { EXPECT_DOUBLE_EQ(Rho({1, kNan, 3, 2}, {1, 5, 3, kNan}), 1); }

TEST(Spearman, UndefinedWithoutSpread) {
  EXPECT_TRUE(std::isnan(Rho({1, 1, 1}, {1, 2, 3})));
  EXPECT_TRUE(std::isnan(Rho({1}, {1})));
  EXPECT_TRUE(std::isnan(Rho({}, {})));
}

}  // namespace
}  // namespace spotlight
