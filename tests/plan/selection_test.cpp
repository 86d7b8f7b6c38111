#include "plan/selection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/random.hpp"

namespace spotlight {
namespace {

using Select = ExploreConfig::Select;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Chosen(const std::vector<double>& rewards, int k, Select rule) {
  std::vector<double> values;
  for (const int i : SelectSeeds(rewards, k, rule)) values.push_back(rewards[static_cast<std::size_t>(i)]);
  std::sort(values.begin(), values.end());
  return values;
}

double Variance(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double mean = 0;
  for (const double value : values) mean += value / n;
  double variance = 0;
  for (const double value : values) variance += (value - mean) * (value - mean) / n;
  return variance;
}

TEST(Selection, KnownCases) {
  EXPECT_THAT(Chosen({0, 0, 0, 1, 5}, 2, Select::kVariance), ElementsAre(0, 5));
  EXPECT_THAT(Chosen({1, 1, 1, 1, 0}, 3, Select::kVariance), ElementsAre(0, 1, 1));
  EXPECT_THAT(Chosen({0, 0, 0, 0, 1}, 4, Select::kVariance), ElementsAre(0, 0, 0, 1));
}

TEST(Selection, HalvesTakeTheExtraOneFromTheBest) {
  EXPECT_THAT(SelectSeeds(std::vector<double>{3, 1, 5, 4, 2}, 3, Select::kHalves), ElementsAre(1, 2, 3));
  EXPECT_THAT(SelectSeeds(std::vector<double>{3, 1, 5, 4, 2}, 2, Select::kHalves), ElementsAre(1, 2));
}

TEST(Selection, MaximumOverAllSubsets) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::vector<double> rewards;
    for (std::uint64_t i = 0; i < 9; ++i) {
      const double u = UniformDouble(trial, i);
      rewards.push_back(trial % 2 == 0 ? u * u : std::floor(4 * u));  // odd trials have ties
    }
    const int k = 1 + static_cast<int>(trial % 8);
    double best = 0;
    for (unsigned mask = 0; mask < 512; ++mask) {
      if (std::popcount(mask) != k) continue;
      std::vector<double> subset;
      for (unsigned i = 0; i < 9; ++i) {
        if ((mask >> i & 1U) != 0) subset.push_back(rewards[i]);
      }
      best = std::max(best, Variance(subset));
    }
    const std::vector<double> chosen = Chosen(rewards, k, Select::kVariance);
    ASSERT_EQ(std::ssize(chosen), k);
    EXPECT_NEAR(Variance(chosen), best, 1e-12) << "trial " << trial;
  }
}

TEST(Selection, EqualRewardsGiveTheFirstSeeds) {
  EXPECT_THAT(SelectSeeds(std::vector<double>(6, 0.1), 4, Select::kVariance), ElementsAre(0, 1, 2, 3));
}

TEST(Selection, UnscoredSeedsAreNeverChosen) {
  const std::vector<double> rewards = {kNan, 1, kNan, 3, 2};
  EXPECT_THAT(SelectSeeds(rewards, 2, Select::kVariance), ElementsAre(1, 3));
  EXPECT_THAT(SelectSeeds(rewards, 2, Select::kHalves), ElementsAre(1, 3));
  EXPECT_THAT(SelectSeeds(rewards, 4, Select::kVariance), ElementsAre(1, 3, 4));
  EXPECT_THAT(SelectSeeds(std::vector<double>{kNan}, 1, Select::kHalves), IsEmpty());
  EXPECT_THAT(SelectSeeds(rewards, 0, Select::kVariance), IsEmpty());
}

}  // namespace
}  // namespace spotlight
