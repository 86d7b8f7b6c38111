#include "plan/selection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
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

TEST(Selection, InfiniteRewardsAreNeverChosen) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(SelectSeeds(std::vector<double>{kInfinity, 1, 2, -kInfinity}, 3, Select::kVariance), ElementsAre(1, 2));
}

// Rewards of trial `trial`: a few NaN, and ties.
std::vector<double> Rewards(std::uint64_t trial, std::uint64_t n) {
  std::vector<double> rewards;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double u = UniformDouble(trial, i);
    rewards.push_back(u < 0.1 ? kNan : std::floor(8 * u));
  }
  return rewards;
}

TEST(Control, FillsTheRestByTheRule) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const std::vector<double> rewards = Rewards(trial, 24);
    const int k = 1 + static_cast<int>(trial % 30);
    const ControlledSeeds seeds = SelectSeedsWithControl(rewards, k, Select::kVariance, 0.25, trial);
    ASSERT_EQ(seeds.kept.size(), seeds.control.size());
    const auto valid = std::count_if(rewards.begin(), rewards.end(), [](double reward) { return !std::isnan(reward); });
    EXPECT_EQ(std::ssize(seeds.kept), std::min<std::ptrdiff_t>(k, valid));
    EXPECT_TRUE(std::is_sorted(seeds.kept.begin(), seeds.kept.end()));
    EXPECT_EQ(std::adjacent_find(seeds.kept.begin(), seeds.kept.end()), seeds.kept.end());
    // Without the control seeds: what the rule picks of the others.
    std::vector<double> others = rewards;
    std::vector<int> picked;
    int controls = 0;
    for (std::size_t i = 0; i < seeds.kept.size(); ++i) {
      EXPECT_FALSE(std::isnan(rewards[static_cast<std::size_t>(seeds.kept[i])]));
      if (seeds.control[i] == 0) {
        picked.push_back(seeds.kept[i]);
      } else {
        others[static_cast<std::size_t>(seeds.kept[i])] = kNan;
        ++controls;
      }
    }
    EXPECT_EQ(picked, SelectSeeds(others, static_cast<int>(picked.size()), Select::kVariance));
    EXPECT_LE(std::abs(controls - 0.25 * static_cast<double>(seeds.kept.size())), 1);
  }
}

TEST(Control, EverySeedIsDrawnEquallyOftenAndTheFractionHolds) {
  // 16 kept of 32 with a share of 1/12: 1 1/3 control seeds on average.
  constexpr int kTrials = 6000;
  const std::vector<double> rewards = [] {
    std::vector<double> values;
    for (int i = 0; i < 32; ++i) values.push_back(i);
    return values;
  }();
  std::vector<int> drawn(32);
  for (std::uint64_t key = 0; key < kTrials; ++key) {
    const ControlledSeeds seeds = SelectSeedsWithControl(rewards, 16, Select::kVariance, 1.0 / 12, key);
    int controls = 0;
    for (std::size_t i = 0; i < seeds.kept.size(); ++i) {
      controls += seeds.control[i];
      drawn[static_cast<std::size_t>(seeds.kept[i])] += seeds.control[i];
    }
    EXPECT_TRUE(controls == 1 || controls == 2);
  }
  int all = 0;
  for (const int count : drawn) {
    EXPECT_NEAR(count, kTrials * 4.0 / 3 / 32, 5 * std::sqrt(kTrials * 4.0 / 3 / 32));
    all += count;
  }
  EXPECT_NEAR(all, kTrials * 4.0 / 3, 5 * std::sqrt(kTrials * 2.0 / 9));
}

TEST(Control, SameKeySameSeeds) {
  const std::vector<double> rewards = Rewards(1, 40);
  const auto kept = [&](std::uint64_t key) {
    return SelectSeedsWithControl(rewards, 8, Select::kHalves, 0.5, key).kept;
  };
  EXPECT_EQ(kept(4), kept(4));
  EXPECT_NE(kept(4), kept(5));
}

TEST(Control, AllOrNone) {
  const std::vector<double> rewards = {1, kNan, 3, 2};
  EXPECT_THAT(SelectSeedsWithControl(rewards, 2, Select::kVariance, 0, 1).control, ElementsAre(0, 0));
  EXPECT_THAT(SelectSeedsWithControl(rewards, 2, Select::kVariance, 1, 1).control, ElementsAre(1, 1));
  EXPECT_THAT(SelectSeedsWithControl(rewards, 8, Select::kVariance, 1, 1).control, ElementsAre(1, 1, 1));
  EXPECT_THAT(SelectSeedsWithControl(std::vector<double>{kNan}, 2, Select::kVariance, 1, 1).kept, IsEmpty());
  EXPECT_THROW(SelectSeedsWithControl(rewards, 2, Select::kVariance, 1.5, 1), InternalError);
}

}  // namespace
}  // namespace spotlight
