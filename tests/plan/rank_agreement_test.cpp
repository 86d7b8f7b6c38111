// What a ranking is worth, on rewards whose agreement is known.
#include "plan/rank_agreement.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace spotlight {
namespace {

using Select = ExploreConfig::Select;

TEST(RankAgreement, IsWholeForTheReferenceItself) {
  const SeedRewards rewards = {{0.3, 0.1, 0.7, 0.2, 0.9, 0.4}, {5, 4, 3, 2, 1, 0}};
  const RankAgreement agreement = CompareRanks(rewards, rewards, 4, Select::kVariance);
  for (std::size_t p = 0; p < rewards.size(); ++p) {
    EXPECT_EQ(agreement.spearman[p], 1);
    EXPECT_EQ(agreement.kendall[p], 1);
    EXPECT_EQ(agreement.overlap[p], 1);
  }
  EXPECT_EQ(agreement.spread, BestSpread(rewards, 4));
}

TEST(RankAgreement, SpreadIsOfTheReferencesRewards) {
  // A wider copy in the wrong order: it chooses seeds 1 and 2, whose reference rewards are 0.4 and 0.6.
  const SeedRewards reference = {{0, 0.4, 0.6, 1}}, rewards = {{50, 0, 100, 51}};
  const RankAgreement agreement = CompareRanks(reference, rewards, 2, Select::kVariance);
  EXPECT_DOUBLE_EQ(agreement.spread[0], 0.1);
  EXPECT_DOUBLE_EQ(agreement.spearman[0], 0.6);
  EXPECT_DOUBLE_EQ(agreement.overlap[0], 0);
  EXPECT_DOUBLE_EQ(BestSpread(reference, 2)[0], 0.5);
}

TEST(RankAgreement, UsesTheRuleOfTheRun) {
  const SeedRewards skewed = {{0, 3, 4, 4, 4, 4}};  // halves: 0, 3, 4, 4; widest: 0, 4, 4, 4
  EXPECT_DOUBLE_EQ(CompareRanks(skewed, skewed, 4, Select::kHalves).spread[0], std::sqrt(2.6875));
  EXPECT_DOUBLE_EQ(CompareRanks(skewed, skewed, 4, Select::kVariance).spread[0], std::sqrt(3.0));
}

TEST(RankAgreement, AlikeRewardsTellNothing) {
  const SeedRewards reference = {{1, 1, 1, 1}, {0, 1, 2, 3}};
  const RankAgreement agreement = CompareRanks(reference, {{0, 1, 2, 3}, {3, 2, 1, 0}}, 2, Select::kVariance);
  EXPECT_TRUE(std::isnan(agreement.spearman[0]));
  EXPECT_EQ(agreement.spread[0], 0);
  EXPECT_EQ(AverageOverPrompts(agreement.spearman).mean, -1) << "the other prompt's";
}

TEST(RandomSpread, IsTheExpectation) {
  // Pairs of 0, 0, 1, 1: two of six have no spread, four have 1/2.
  const double spread = RandomSpread({{0, 0, 1, 1}}, 2)[0];
  EXPECT_NEAR(spread, 1.0 / 3, 0.06) << "200 draws: a standard error of 0.017";
  EXPECT_EQ(RandomSpread({{0, 0, 1, 1}}, 2)[0], spread);
  EXPECT_DOUBLE_EQ(RandomSpread({{0, 0, 1, 1}}, 4)[0], 0.5) << "there is but one choice";
}

TEST(SpreadGained, IsTheWayFromRandomToBest) {
  const std::vector<double> random = {0.1, 0.3}, best = {0.5, 0.7}, spread = {0.5, 0.5};
  EXPECT_NEAR(SpreadGained(spread, random, best), 0.75, 1e-12);
  EXPECT_NEAR(SpreadGained(random, random, best), 0, 1e-12);
  EXPECT_TRUE(std::isnan(SpreadGained(random, random, random)));
}

TEST(AverageOverPrompts, HasAnIntervalAroundTheMean) {
  std::vector<double> values(40);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 0.4 : 0.8;
  values.push_back(std::numeric_limits<double>::quiet_NaN());
  const MeanOverPrompts average = AverageOverPrompts(values);
  EXPECT_NEAR(average.mean, 0.6, 1e-12);
  EXPECT_NEAR(average.interval.low, 0.6 - 1.96 * 0.2 / std::sqrt(40.0), 0.02);
  EXPECT_NEAR(average.interval.high, 0.6 + 1.96 * 0.2 / std::sqrt(40.0), 0.02);
}

}  // namespace
}  // namespace spotlight
