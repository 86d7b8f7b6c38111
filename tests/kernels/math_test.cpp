#include "kernels/math.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "kernels/lanes.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Distance in units of the last place of `expected` (of the subnormals' below them).
double UlpError(float actual, double expected) {
  const int exponent = std::max(std::ilogb(expected), -126);
  return std::fabs(actual - expected) / std::ldexp(1.0, exponent - 23);
}

TEST(Exp, IsAccurateOverTheWholeRange) {
  double worst = 0;
  for (double x = -104; x < 88.72; x += 1e-4) {
    const auto value = static_cast<float>(x);
    worst = std::max(worst, UlpError(Exp(value), std::exp(static_cast<double>(value))));
  }
  EXPECT_LE(worst, 1.1);
}

TEST(Exp, HandlesTheEnds) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(-1e30f), 0);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(88.73f), kInfinity);
  EXPECT_EQ(Exp(3e38f), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(ExpOfSmall, IsExpWhereTheResultIsNormalAndZeroBelow) {
  for (float x = -87.33f; x < 88; x += 1e-3f) ASSERT_EQ(ExpOfSmall(x), Exp(x)) << x;
  for (const float x : {-87.4f, -104.0f, -1e30f, -kInfinity}) EXPECT_EQ(ExpOfSmall(x), 0) << x;
  EXPECT_TRUE(std::isnan(ExpOfSmall(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Exp, HasTheSameBitsInAVectorisedLoop) {
  const Floats x = Normals(1, 1000);
  Floats y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = Exp(20 * x[i]);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const volatile float one = 20 * x[i];
    ASSERT_EQ(y[i], Exp(one));
  }
}

TEST(Sigmoid, IsAccurateOverTheWholeRange) {
  double worst = 0;
  for (double x = -87; x < 100; x += 1e-4) {
    const auto value = static_cast<float>(x);
    worst = std::max(worst, UlpError(Sigmoid(value), 1 / (1 + std::exp(-static_cast<double>(value)))));
  }
  EXPECT_LE(worst, 2.5);
  EXPECT_EQ(Sigmoid(-kInfinity), 0);
  EXPECT_EQ(Sigmoid(kInfinity), 1);
  EXPECT_EQ(Sigmoid(-1e30f), 0);
  EXPECT_EQ(Sigmoid(1e30f), 1);
}

TEST(LaneSum, AddsEveryTermOnce) {
  for (const std::int64_t size : {0, 1, 3, 7, 8, 9, 17, 24, 31, 32, 33, 96, 100, 1000}) {
    // Powers of two would overflow; small integers add without rounding, so a lost term shows.
    const auto sum = LaneSum(size, [](std::int64_t i) { return static_cast<float>(i + 1); });
    EXPECT_EQ(sum, static_cast<float>(size * (size + 1) / 2)) << size;
  }
}

TEST(LaneSum, DoesNotDependOnAlignment) {
  const Floats x = Normals(2, 1000);
  for (std::int64_t shift = 1; shift < 16; ++shift) {
    Floats moved(static_cast<std::size_t>(shift), 0.0f);
    moved.insert(moved.end(), x.begin(), x.end());
    const float* from = moved.data() + shift;
    EXPECT_EQ(LaneSum(1000, [=](std::int64_t i) { return from[i]; }),
              LaneSum(1000, [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; }));
  }
}

}  // namespace
}  // namespace spotlight
