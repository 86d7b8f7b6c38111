#include "driver/roster.hpp"

#include <gtest/gtest.h>

namespace spotlight {
namespace {

constexpr auto kRollout = static_cast<std::size_t>(Use::kRollout);

Pull ReportOf(std::vector<std::uint32_t> members, double rollout_seconds) {
  std::vector<double> busy(kUses, 0.0);
  busy[kRollout] = rollout_seconds;
  return {.rank = members.at(0), .role = Role::kExplorer, .capacity = 8, .busy_seconds = busy, .members = members};
}

class RosterTest : public testing::Test {
 protected:
  void Arrive(std::uint32_t rank, double now, bool parked = false) {
    roster_.Arrive({.rank = rank, .role = Role::kExplorer, .host = "here", .parked = parked}, now);
  }
  double Spot(Use use) const { return ledger_.Seconds(Pool::kSpot, use); }

  CostLedger ledger_{CostConfig{}};
  Roster roster_{ledger_};
};

TEST_F(RosterTest, AGroupsLeaderReportsForAllItsMembers) {
  Arrive(2, 0);
  Arrive(3, 0);
  roster_.Report(ReportOf({2, 3}, 4), 10);
  EXPECT_DOUBLE_EQ(Spot(Use::kRollout), 8);
  EXPECT_DOUBLE_EQ(Spot(Use::kIdle), 12);
  EXPECT_EQ(roster_.Leaders(), std::vector<int>{2});
  // The group has fallen apart: each speaks for itself, from where the last report ended.
  roster_.Report(ReportOf({3}, 1), 12);
  EXPECT_DOUBLE_EQ(Spot(Use::kRollout), 9);
  EXPECT_DOUBLE_EQ(Spot(Use::kIdle), 13);
  EXPECT_EQ(roster_.Leaders(), (std::vector<int>{2, 3}));
}

TEST_F(RosterTest, EverySecondOfALostRankIsBilledOnce) {
  Arrive(2, 0);
  roster_.Report(ReportOf({2}, 5), 5);
  roster_.Depart(2, Use::kLost, 8);
  roster_.Depart(2, Use::kLost, 9);
  EXPECT_DOUBLE_EQ(Spot(Use::kRollout), 5);
  EXPECT_DOUBLE_EQ(Spot(Use::kLost), 3);
  EXPECT_DOUBLE_EQ(ledger_.Seconds(Pool::kSpot), 8);
  EXPECT_EQ(roster_.counts.lost, 1);
  EXPECT_EQ(roster_.explorers(), 0);
  // A report that names it comes too late to count.
  Arrive(3, 8);
  roster_.Report(ReportOf({3, 2}, 1), 9);
  EXPECT_DOUBLE_EQ(ledger_.Seconds(Pool::kSpot), 9);
}

TEST_F(RosterTest, AParkedRankCostsNothingUntilItWorks) {
  Arrive(2, 0, true);
  EXPECT_EQ(roster_.explorers(), 0);
  roster_.Report(ReportOf({2}, 3), 103);
  EXPECT_EQ(roster_.explorers(), 1);
  EXPECT_DOUBLE_EQ(ledger_.Seconds(Pool::kSpot), 3);
  Arrive(4, 0, true);
  roster_.Depart(4, Use::kLost, 200);
  EXPECT_DOUBLE_EQ(ledger_.Seconds(Pool::kSpot), 3);
}

TEST_F(RosterTest, GroupsOfHungLeadersAreNotCounted) {
  for (const std::uint32_t rank : {2, 3, 4}) Arrive(rank, 0);
  roster_.Report(ReportOf({2, 3}, 0), 1);
  EXPECT_EQ(roster_.explorers(), 3);
  EXPECT_EQ(roster_.explorers({2}), 1);
  EXPECT_EQ(roster_.explorers({2, 4}), 0);
  EXPECT_EQ(roster_.explorers({7}), 3) << "not here";
}

TEST_F(RosterTest, NumbersOfJoiningRanksAreGivenOnce) {
  Arrive(5, 0);
  const std::uint32_t first = roster_.Reserve(4);
  EXPECT_GE(first, 1000U);
  EXPECT_EQ(roster_.Reserve(1), first + 4);
  EXPECT_EQ(roster_.counts.joins, 2);
}

TEST_F(RosterTest, AFlappingHostWaitsLongerEachTime) {
  double now = 0;
  EXPECT_EQ(roster_.CoolDown("here", 1, now), 0);
  for (const double wait : {1.0, 2.0, 4.0}) {
    // Two ranks of one job, lost together: one loss.
    const std::uint32_t rank = roster_.Reserve(2);
    Arrive(rank, now);
    Arrive(rank + 1, now);
    now += 2;
    roster_.Depart(rank, Use::kLost, now);
    roster_.Depart(rank + 1, Use::kLost, now);
    EXPECT_DOUBLE_EQ(roster_.CoolDown("here", 1, now), wait);
    EXPECT_EQ(roster_.CoolDown("there", 1, now), 0);
    EXPECT_EQ(roster_.CoolDown("here", 1, now + wait), 0);
    now += wait;
  }
  // One that stays for long makes up for them; one that leaves in order never counts.
  const std::uint32_t rank = roster_.Reserve(2);
  Arrive(rank, now);
  roster_.Depart(rank, Use::kLost, now + 1000);
  EXPECT_EQ(roster_.CoolDown("here", 1, now + 1000), 0);
  Arrive(rank + 1, now);
  roster_.Depart(rank + 1, Use::kDraining, now + 1);
  EXPECT_EQ(roster_.CoolDown("here", 1, now + 1), 0);
}

}  // namespace
}  // namespace spotlight
