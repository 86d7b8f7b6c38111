#include "comm/sp_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<PlacedRank> kOnTwoHosts = {{1, "a"}, {2, "a"}, {4, "b"}, {5, "b"}, {7, "b"}, {8, "b"}};

std::string MessageOf(const std::vector<PlacedRank>& ranks, int degree) {
  try {
    PlanSpGroups("ranks/explorer_sp", Role::kExplorer, ranks, degree);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SpPlan, ConsecutiveRanksOfOneHost) {
  EXPECT_THAT(PlanSpGroups("key", Role::kExplorer, kOnTwoHosts, 2),
              ElementsAre(ElementsAre(1, 2), ElementsAre(4, 5), ElementsAre(7, 8)));
  EXPECT_THAT(PlanSpGroups("key", Role::kTrainer, std::vector<PlacedRank>{{3, "a"}, {4, "b"}}, 1),
              ElementsAre(ElementsAre(3), ElementsAre(4)));
  EXPECT_THAT(PlanSpGroups("key", Role::kTrainer, std::vector<PlacedRank>{{1, "a"}, {2, "a"}, {3, "a"}}, 3),
              ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(PlanSpGroups("key", Role::kExplorer, {}, 4), IsEmpty());
}

TEST(SpPlan, WhatDoesNotFitIsNamed) {
  EXPECT_THAT(MessageOf(kOnTwoHosts, 4),
              HasSubstr("ranks/explorer_sp=4: the explorer ranks are 2 on a, 4 on b (in rank order), and a group is 4 "
                        "ranks in a row on one host, none left over; set it to 1, 2, or start a multiple of 4"));
  // Ranks dealt round the hosts lie in no row.
  EXPECT_THAT(MessageOf({{1, "a"}, {2, "b"}, {3, "a"}, {4, "b"}}, 2),
              HasSubstr("1 on a, 1 on b, 1 on a, 1 on b (in rank order)"));
  EXPECT_THAT(MessageOf({{1, "a"}, {2, "a"}, {3, "a"}}, 2), HasSubstr("set it to 1, 3, or"));
}

}  // namespace
}  // namespace spotlight
