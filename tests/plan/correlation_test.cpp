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

TEST(Pearson, OfTheValues) {
  // Deviations {-1, 0, 1} and {-2, -1, 3}: 5 / sqrt(2 * 14).
  EXPECT_DOUBLE_EQ(Pearson(std::vector<double>{1, 2, 3}, std::vector<double>{0, 1, 5}), 5 / std::sqrt(28));
  EXPECT_DOUBLE_EQ(Pearson(std::vector<double>{1, 2, kNan, 3}, std::vector<double>{2, 4, 9, 6}), 1);
  EXPECT_TRUE(std::isnan(Pearson(std::vector<double>{0.1, 0.1, 0.1}, std::vector<double>{1, 2, 3})));
}

TEST(KendallTauB, WithoutTies) {
  // 6 pairs, one of them discordant.
  EXPECT_DOUBLE_EQ(KendallTauB(std::vector<double>{1, 2, 3, 4}, std::vector<double>{1, 2, 4, 3}), 4.0 / 6);
  EXPECT_DOUBLE_EQ(KendallTauB(std::vector<double>{1, 2, 3}, std::vector<double>{3, 2, 1}), -1);
}

TEST(KendallTauB, TiesLeaveTheDenominator) {
  // Pairs untied in x: 5 of 6, in y: 4 of 6; concordant 4, discordant 0.
  EXPECT_DOUBLE_EQ(KendallTauB(std::vector<double>{1, 1, 2, 3}, std::vector<double>{0, 0, 1, 1}),
                   4 / std::sqrt(5.0 * 4.0));
  EXPECT_DOUBLE_EQ(KendallTauB(std::vector<double>{0, 0, 1, 1}, std::vector<double>{0, 0, 1, 1}), 1);
}

TEST(KendallTauB, UndefinedWithoutSpread) {
  EXPECT_TRUE(std::isnan(KendallTauB(std::vector<double>{1, 1}, std::vector<double>{1, 2})));
  EXPECT_TRUE(std::isnan(KendallTauB(std::vector<double>{1, kNan}, std::vector<double>{1, 2})));
}

TEST(ExtremeOverlap, CountsBothEnds) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(ExtremeOverlap(x, x, 3), 1);
  // Best two of y: 7, 8 -> places 6, 5; worst two: 1, 2 -> places 0, 3.
  const std::vector<double> y = {1, 3, 4, 2, 5, 8, 7, 6};
  EXPECT_EQ(ExtremeOverlap(x, y, 2), 0.5);
  EXPECT_EQ(ExtremeOverlap(x, std::vector<double>{8, 7, 6, 5, 4, 3, 2, 1}, 4), 0);
}

TEST(ExtremeOverlap, TiesShareThePlacesLeft) {
  const std::vector<double> x = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_DOUBLE_EQ(ExtremeOverlap(x, std::vector<double>(8, 0.5), 2), 2.0 / 8);  // by chance
  // Best two of y: four tie. Worst two: likewise. Each of x's two best has half a place.
  EXPECT_DOUBLE_EQ(ExtremeOverlap(x, std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1}, 2), 0.5);
}

TEST(ExtremeOverlap, NeedsTwoKPairs) {
  EXPECT_TRUE(std::isnan(ExtremeOverlap(std::vector<double>{1, 2, 3, kNan}, std::vector<double>{1, 2, 3, 4}, 2)));
}

}  // namespace
}  // namespace spotlight
