#include "plan/arms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;

TEST(ArmGrid, FiveByFiveSortedBySeedsThenSteps) {
  const std::vector<Arm> arms = ArmGrid(16, 64, 10);
  ASSERT_EQ(arms.size(), 25);
  EXPECT_EQ(arms.front(), (Arm{16, 3}));
  EXPECT_EQ(arms[1], (Arm{16, 4}));
  EXPECT_EQ(arms[5], (Arm{24, 3}));
  EXPECT_EQ(arms.back(), (Arm{64, 10}));
}

TEST(ArmGrid, MostSeedsAreInTheGridAndBoundIt) {
  EXPECT_THAT(ArmGrid(8, 20, 1), ElementsAre(Arm{8, 1}, Arm{12, 1}, Arm{16, 1}, Arm{20, 1}));
  EXPECT_THAT(ArmGrid(2, 100, 1), ElementsAre(Arm{2, 1}, Arm{3, 1}, Arm{4, 1}, Arm{6, 1}, Arm{8, 1}, Arm{100, 1}));
  EXPECT_THAT(ArmGrid(8, 4, 1), ElementsAre(Arm{4, 1}));
}

TEST(ArmGrid, RoundsUpAndListsEachArmOnce) {
  // Seeds 3, 4.5, 6; steps 0.6, 0.8, 1.2, 1.6, 2.
  EXPECT_THAT(ArmGrid(3, 6, 2), ElementsAre(Arm{3, 1}, Arm{3, 2}, Arm{5, 1}, Arm{5, 2}, Arm{6, 1}, Arm{6, 2}));
  // 0.3 * 10 in double must not round up to 4.
  EXPECT_EQ(ArmGrid(1, 1, 20).front(), (Arm{1, 6}));
}

TEST(ArmGrid, RefusesNothingToChooseFrom) {
  EXPECT_THROW(ArmGrid(8, 0, 10), InternalError);
  EXPECT_THROW(ArmGrid(0, 8, 10), InternalError);
}

}  // namespace
}  // namespace spotlight
