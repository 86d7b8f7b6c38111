#include "plan/bandit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<std::size_t> kAll = {0, 1, 2};

ArmBandit Bandit(ArmRule rule, double ucb = 0.3, double discount = 0.95) {
  return {3, {.rule = rule, .ucb = ucb, .discount = discount, .run_seed = 7}};
}

TEST(Bandit, UcbByHand) {
  ArmBandit bandit = Bandit(ArmRule::kUcb, 0.3, 0.5);
  bandit.Credit(0, 0, 1, 4);
  bandit.Credit(1, 1, 1, 2);  // N 0.5 and 1, means 4 and 2, maximum 4 * 0.99
  const double bonus = 0.3 * std::sqrt(2 * std::log(1.5));
  const std::vector<double> scores = bandit.Scores(kAll, 2);
  EXPECT_NEAR(scores[0], 4 / 3.96 + bonus / std::sqrt(0.5), 1e-12);
  EXPECT_NEAR(scores[1], 2 / 3.96 + bonus, 1e-12);
  EXPECT_EQ(scores[2], kInfinity);
  EXPECT_THAT(bandit.Scores(std::vector<std::size_t>{1}, 2), ElementsAre(scores[1]));
}

TEST(Bandit, RewardsAreMeasuredByTheLargestWheneverItCame) {
  ArmBandit bandit = Bandit(ArmRule::kGreedy, 0, 1);
  bandit.Credit(0, 0, 1, 1);
  bandit.Credit(1, 1, 1, 2);
  bandit.Credit(2, 2, 1, 4);
  EXPECT_THAT(bandit.Scores(kAll, 3), ElementsAre(0.25, 0.5, 1));
}

TEST(Bandit, TheMaximumFollowsADriftOfAllArms) {
  ArmBandit bandit = Bandit(ArmRule::kGreedy);
  for (std::uint32_t i = 0; i < 400; ++i) bandit.Credit(i % 2, i, 1, (i % 2 == 0 ? 1 : 0.8) * std::pow(0.99, i));
  const std::vector<double> scores = bandit.Scores(std::vector<std::size_t>{0, 1}, 400);
  EXPECT_NEAR(scores[1] / scores[0], 0.8, 0.01);
  EXPECT_GT(scores[0], 0.9);  // 0.02 if the first maximum were kept
  EXPECT_LT(scores[0], 1.5);
}

TEST(Bandit, ACutPullGivesNoRewardAndWaits) {
  ArmBandit bandit = Bandit(ArmRule::kUcb);
  bandit.Credit(0, 0, 1, 1);
  bandit.Credit(1, 1, 0, 5);
  EXPECT_EQ(bandit.Scores(kAll, 2)[1], -kInfinity);
  EXPECT_EQ(bandit.Scores(kAll, 20)[1], -kInfinity);
  EXPECT_EQ(bandit.Scores(kAll, 21)[1], kInfinity);
  EXPECT_EQ(bandit.Scores(kAll, 2)[0], 1);  // neither the discount nor the maximum moved
}

TEST(Bandit, PartOfAPullWeighsLess) {
  ArmBandit bandit = Bandit(ArmRule::kGreedy, 0, 1);
  bandit.Credit(0, 0, 1, 1);
  bandit.Credit(0, 1, 0.5, 0.4);
  EXPECT_NEAR(bandit.Scores(kAll, 2)[0], (1 + 0.5 * 0.4) / 1.5 / 0.99, 1e-12);
}

TEST(Bandit, RewardsOfNothingAreAReward) {
  ArmBandit bandit = Bandit(ArmRule::kUcb);
  for (std::uint32_t i = 0; i < 6; ++i) bandit.Credit(i % 3, i, 1, 0);
  for (const double score : bandit.Scores(kAll, 6)) EXPECT_TRUE(std::isfinite(score) && score > 0);
}

TEST(Bandit, RoundRobinTakesTheOneThatWaitedLongest) {
  ArmBandit bandit = Bandit(ArmRule::kRoundRobin);
  bandit.Credit(2, 0, 1, 1);
  bandit.Credit(0, 1, 1, 1);
  bandit.Credit(1, 2, 1, 1);
  EXPECT_THAT(bandit.Scores(kAll, 3), ElementsAre(2, 1, 3));
}

TEST(Bandit, ThompsonDrawsFromItsPosterior) {
  ArmBandit bandit = Bandit(ArmRule::kThompson, 0.3, 1);
  for (std::uint32_t i = 0; i < 12; ++i) bandit.Credit(i % 3, i, 1, i % 3 == 0 ? 1 : 0.5);
  const double mean = 1 / std::pow(0.99, 2);  // arm 0 earned the maximum, two pulls ago
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 4000;
  for (std::uint32_t i = 0; i < kDraws; ++i) {
    const double score = bandit.Scores(kAll, i)[0] - mean;
    sum += score;
    squares += score * score;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / kDraws), 0.3 / 2, 0.005);  // four pulls
  EXPECT_EQ(bandit.Scores(kAll, 5), bandit.Scores(kAll, 5));
  EXPECT_NE(bandit.Scores(kAll, 5), bandit.Scores(kAll, 6));
}

TEST(Bandit, LongForgottenArmsAreTriedAnew) {
  ArmBandit bandit = Bandit(ArmRule::kGreedy, 0, 0.5);
  bandit.Credit(0, 0, 1, 1);
  for (std::uint32_t i = 1; i < 2000; ++i) bandit.Credit(1, i, 1, 0.5);
  EXPECT_EQ(bandit.Scores(kAll, 2000)[0], kInfinity);
}

TEST(Bandit, StateSurvivesOtherArms) {
  ArmBandit bandit = Bandit(ArmRule::kUcb);
  for (std::uint32_t i = 0; i < 5; ++i) bandit.Credit(i % 3, i, 1, 1 + i % 3);
  ArmBandit copy = Bandit(ArmRule::kUcb);
  copy.Restore(bandit.State(), std::vector<int>{0, 1, 2});
  EXPECT_EQ(copy.State(), bandit.State());
  ArmBandit other(2, {.rule = ArmRule::kUcb});
  other.Restore(bandit.State(), std::vector<int>{2, -1});
  EXPECT_EQ(other.Scores(std::vector<std::size_t>{1}, 5)[0], kInfinity);
  EXPECT_EQ(other.State()[1], bandit.State()[7]);
}

TEST(Bandit, RefusesWhatIsNoReward) {
  ArmBandit bandit = Bandit(ArmRule::kUcb);
  EXPECT_THROW(bandit.Credit(0, 0, 1, kInfinity), InternalError);
  EXPECT_THROW(bandit.Credit(0, 0, 1, std::nan("")), InternalError);
  EXPECT_THROW(bandit.Credit(0, 0, 1, -1), InternalError);
  EXPECT_THROW(bandit.Credit(0, 0, 1.5, 1), InternalError);
  EXPECT_THROW(bandit.Credit(3, 0, 1, 1), InternalError);
}

}  // namespace
}  // namespace spotlight
