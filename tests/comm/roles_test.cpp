#include "comm/roles.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Role kC = Role::kCoordinator;
constexpr Role kT = Role::kTrainer;
constexpr Role kE = Role::kExplorer;

std::string MessageOf(int trainers, const std::vector<std::string>& wishes) {
  try {
    PlanRoles(trainers, wishes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Roles, ByRankWithoutWishes) {
  EXPECT_THAT(PlanRoles(1, std::vector<std::string>(4)), ElementsAre(kC, kT, kE, kE));
  EXPECT_THAT(PlanRoles(2, std::vector<std::string>(3)), ElementsAre(kC, kT, kT));
}

TEST(Roles, OneProcessPlaysAll) {
  EXPECT_THAT(PlanRoles(1, {""}), ElementsAre(Role::kAll));
  EXPECT_THAT(MessageOf(2, {""}), HasSubstr("ranks/trainers: 2 trainers, but there is only 1 process"));
}

TEST(Roles, WishesComeFirst) {
  EXPECT_THAT(PlanRoles(1, {"", "", "", "coordinator"}), ElementsAre(kT, kE, kE, kC));
  EXPECT_THAT(PlanRoles(2, {"explorer", "", "trainer", ""}), ElementsAre(kE, kC, kT, kT));
}

TEST(Roles, ImpossibleSplitsAreNamed) {
  EXPECT_THAT(MessageOf(3, std::vector<std::string>(3)),
              HasSubstr("ranks/trainers: 3 trainers and 1 coordinator do not fit into 3 ranks; lower it to at most 2, "
                        "or start at least 4 ranks"));
  EXPECT_THAT(MessageOf(0, std::vector<std::string>(3)), HasSubstr("ranks/trainers: 0; at least 1"));
  EXPECT_THAT(MessageOf(1, {"", "boss", ""}), HasSubstr("SPOTLIGHT_ROLE of rank 1: 'boss' is no role"));
  EXPECT_THAT(MessageOf(1, {"coordinator", "", "coordinator"}), HasSubstr("2 ranks want to be the coordinator"));
  EXPECT_THAT(MessageOf(1, {"", "trainer", "trainer"}),
              HasSubstr("2 ranks want to be trainers, but ranks/trainers is 1"));
  EXPECT_THAT(MessageOf(1, {"explorer", "trainer"}), HasSubstr("no rank is left to be the coordinator"));
  EXPECT_THAT(MessageOf(1, {"coordinator", "explorer"}), HasSubstr("no rank is left to be a trainer"));
}

}  // namespace
}  // namespace spotlight
