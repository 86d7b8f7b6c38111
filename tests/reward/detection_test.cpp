#include "reward/detection.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace spotlight {
namespace {

// Names of the relations that hold for 14x14 boxes whose centres are (dx, dy) apart.
std::string Holding(int dx, int dy) {
  const Box b{100, 100, 114, 114};
  const Box a{100 + dx, 100 + dy, 114 + dx, 114 + dy};
  std::string names;
  for (const std::string& relation : kRelations) {
    if (RelationHolds(relation, a, b)) names += (names.empty() ? "" : ", ") + relation;
  }
  return names;
}

TEST(RelationHolds, FollowsTheAxes) {
  EXPECT_EQ(Holding(-16, 0), "left of");
  EXPECT_EQ(Holding(16, 0), "right of");
  EXPECT_EQ(Holding(0, -16), "above");
  EXPECT_EQ(Holding(0, 16), "below");
}

TEST(RelationHolds, NeedsMoreThanTheTolerance) {
  EXPECT_EQ(Holding(0, 0), "");
  EXPECT_EQ(Holding(2, 0), "");          // within 0.1 * (14 + 14) = 2.8 pixels
  EXPECT_EQ(Holding(5, 0), "");          // (5 - 2.8) / 5 = 0.44
  EXPECT_EQ(Holding(6, 0), "right of");  // (6 - 2.8) / 6 = 0.53
}

TEST(RelationHolds, TwoOnADiagonal) {
  EXPECT_EQ(Holding(-32, 32), "left of, below");  // 29.2 / 45.3 = 0.65
  EXPECT_EQ(Holding(-8, 8), "");                  // 5.2 / 11.3 = 0.46
  EXPECT_EQ(Holding(48, -16), "right of");        // 13.2 / 50.6 = 0.26 upwards
}

TEST(RelationHolds, RefusesAnUnknownName) {
  EXPECT_THROW(RelationHolds("behind", {0, 0, 14, 14}, {50, 0, 64, 14}), InternalError);
}

TEST(ShareOf, IsZeroForAnUnknownColor) {
  Detection detection;
  detection.color_shares = {{"red", 0.75}, {"blue", 0.25}};
  EXPECT_EQ(ShareOf(detection, "blue"), 0.25);
  EXPECT_EQ(ShareOf(detection, "mauve"), 0);
}

}  // namespace
}  // namespace spotlight
