#include "plan/advantage.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(Advantage, GroupMeanAndPopulationStd) {
  // Group 0: {1, 3}: mean 2, std 1. Group 1: {0, 0, 3}: mean 1, std sqrt(2).
  const std::vector<double> rewards = {1, 0, 3, 0, 3};
  const std::vector<int> group = {0, 1, 0, 1, 1};
  const Advantages result = GroupAdvantages(rewards, group, 2, {});
  EXPECT_DOUBLE_EQ(result.group_mean[0], 2);
  EXPECT_DOUBLE_EQ(result.group_std[0], 1);
  EXPECT_DOUBLE_EQ(result.group_std[1], std::sqrt(2));
  EXPECT_DOUBLE_EQ(result.values[0], -1 / (1 + 1e-4));
  EXPECT_DOUBLE_EQ(result.values[2], 1 / (1 + 1e-4));
  EXPECT_DOUBLE_EQ(result.values[4], 2 / (std::sqrt(2) + 1e-4));
  EXPECT_EQ(result.zero_spread, (std::vector<unsigned char>{0, 0}));
}

TEST(Advantage, GlobalStdKeepsTheGroupMean) {
  const std::vector<double> rewards = {1, 3, 5, 7};
  const std::vector<int> group = {0, 0, 1, 1};
  AdvantageOptions options;
  options.global_std = true;
  const Advantages result = GroupAdvantages(rewards, group, 2, options);
  EXPECT_DOUBLE_EQ(result.global_std, std::sqrt(5));
  EXPECT_DOUBLE_EQ(result.values[0], -1 / (std::sqrt(5) + 1e-4));
  EXPECT_DOUBLE_EQ(result.values[3], 1 / (std::sqrt(5) + 1e-4));
}

TEST(Advantage, ClipsBothSides) {
  std::vector<double> rewards(40, 0);
  rewards[7] = 1;
  const std::vector<int> group(40, 0);
  EXPECT_EQ(GroupAdvantages(rewards, group, 1, {}).values[7], 5);
  rewards[7] = -1;
  EXPECT_EQ(GroupAdvantages(rewards, group, 1, {}).values[7], -5);
}

TEST(Advantage, GroupWithoutSpreadIsMarkedAndExactlyZero) {
  // The mean of three times 0.1 is not 0.1 in double.
  const std::vector<double> rewards = {0.1, 0.1, 0.1, 1, 2};
  const std::vector<int> group = {0, 0, 0, 1, 1};
  const Advantages result = GroupAdvantages(rewards, group, 2, {});
  EXPECT_EQ(result.zero_spread, (std::vector<unsigned char>{1, 0}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(result.values[static_cast<std::size_t>(i)], 0);
}

TEST(Advantage, UnscoredSamplesCountNowhere) {
  const std::vector<double> rewards = {1, kNan, 3, kNan};
  const std::vector<int> group = {0, 0, 0, 1};
  const Advantages result = GroupAdvantages(rewards, group, 2, {});
  EXPECT_DOUBLE_EQ(result.group_mean[0], 2);
  EXPECT_DOUBLE_EQ(result.global_std, 1);
  EXPECT_TRUE(std::isnan(result.values[1]));
  EXPECT_TRUE(std::isnan(result.group_mean[1]));
  EXPECT_EQ(result.zero_spread, (std::vector<unsigned char>{0, 1}));
}

TEST(Advantage, SpreadOfLargeRewardsIsNotLost) {
  const std::vector<double> rewards = {1e8, 1e8 + 2};
  const std::vector<int> group = {0, 0};
  EXPECT_DOUBLE_EQ(GroupAdvantages(rewards, group, 1, {}).group_std[0], 1);
}

TEST(Advantage, GroupOutOfRangeIsABug) {
  const std::vector<double> rewards = {1};
  const std::vector<int> group = {1};
  EXPECT_THROW(GroupAdvantages(rewards, group, 1, {}), InternalError);
}

TEST(Advantage, ThePoolTakesTheGroupsPlace) {
  const std::vector<double> rewards = {0, 1, 0, 1, 5, 5};
  const std::vector<int> group = {0, 0, 1, 1, 2, 2};
  const std::vector<Moments> pool = {{0.25, 0.5}, {0.25, 0}, {1, 2}};
  Advantages result = GroupAdvantages(rewards, group, 3, {}, pool);
  EXPECT_DOUBLE_EQ(result.values[0], -0.25 / (0.5 + 1e-4));
  EXPECT_DOUBLE_EQ(result.values[1], 0.75 / (0.5 + 1e-4));
  EXPECT_DOUBLE_EQ(result.values[2], -0.5 / (0.5 + 1e-4));  // a pool without spread: the group's own
  EXPECT_EQ(result.values[4], 0);                           // a group without spread
  EXPECT_DOUBLE_EQ(result.group_mean[0], 0.5);
  EXPECT_DOUBLE_EQ(result.group_std[0], 0.5);
  const std::vector<Moments> unknown(3);
  EXPECT_EQ(GroupAdvantages(rewards, group, 3, {}, unknown).values, GroupAdvantages(rewards, group, 3, {}).values);
  AdvantageOptions options;
  options.global_std = true;
  result = GroupAdvantages(rewards, group, 3, options, pool);
  EXPECT_DOUBLE_EQ(result.values[1], 0.75 / (result.global_std + 1e-4));
  EXPECT_THROW(GroupAdvantages(rewards, group, 3, {}, std::vector<Moments>(2)), InternalError);
}

TEST(Advantage, MomentsOfFiniteRewards) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_DOUBLE_EQ(MomentsOf(std::vector<double>{1, kNan, 3, infinity}).mean, 2);
  EXPECT_DOUBLE_EQ(MomentsOf(std::vector<double>{1, kNan, 3, -infinity}).std, 1);
  EXPECT_EQ(MomentsOf(std::vector<double>{0.1, 0.1, 0.1}).std, 0);
  EXPECT_TRUE(std::isnan(MomentsOf({}).mean));
  EXPECT_TRUE(
      std::isnan(GroupAdvantages(std::vector<double>{1, infinity, 2}, std::vector<int>{0, 0, 0}, 1, {}).values[1]));
}

}  // namespace
}  // namespace spotlight
