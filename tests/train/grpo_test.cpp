// The clipped objective against its closed form.
#include "train/grpo.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace spotlight {
namespace {

TEST(ClippedObjective, EqualLogProbsGiveRatioOneAndThePolicyGradient) {
  const PairLoss pair = ClippedObjective(-0.5, -0.5, 1.3, 1e-4);
  EXPECT_EQ(pair.ratio, 1.0);
  EXPECT_EQ(pair.loss, -1.3);
  EXPECT_EQ(pair.dlog_prob, -1.3);
  EXPECT_FALSE(pair.clipped);
}

TEST(ClippedObjective, ClipsOnlyWhatTheAdvantageWouldPushFurther) {
  const double up = 0.01, down = -0.01, clip = 1e-3;
  EXPECT_TRUE(ClippedObjective(up, 0, 1, clip).clipped);     // good sample, already likelier
  EXPECT_FALSE(ClippedObjective(down, 0, 1, clip).clipped);  // good sample, less likely: pull it back
  EXPECT_TRUE(ClippedObjective(down, 0, -1, clip).clipped);  // bad sample, already less likely
  EXPECT_FALSE(ClippedObjective(up, 0, -1, clip).clipped);
  EXPECT_EQ(ClippedObjective(up, 0, 1, clip).dlog_prob, 0.0);
  EXPECT_NEAR(ClippedObjective(up, 0, 1, clip).loss, -1.001, 1e-12);
}

TEST(ClippedObjective, GradientIsTheDerivative) {
  for (const double advantage : {-2.0, -0.3, 0.7, 5.0}) {
    for (const double log_prob : {-0.05, -0.0004, 0.0, 0.0004, 0.05}) {
      const double h = 1e-7, clip = 1e-3;
      const double numeric = (ClippedObjective(log_prob + h, 0, advantage, clip).loss -
                              ClippedObjective(log_prob - h, 0, advantage, clip).loss) /
                             (2 * h);
      EXPECT_NEAR(ClippedObjective(log_prob, 0, advantage, clip).dlog_prob, numeric, 1e-6);
    }
  }
}

}  // namespace
}  // namespace spotlight
