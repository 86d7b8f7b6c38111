#include "schedule/membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// A pool whose ranks come and go, with what each knows of its last plan.
class Pool {
 public:
  void Add(int rank, int host, MemberState state = MemberState::kActive) {
    members_.push_back({rank, host, state, -1, -1, 0});
  }
  void Remove(int rank) {
    std::erase_if(members_, [&](const Member& member) { return member.rank == rank; });
  }
  void SetState(int rank, MemberState state) {
    for (Member& member : members_) {
      if (member.rank == rank) member.state = state;
    }
  }
  GroupPlan Plan(const GroupRules& rules) {
    GroupPlan plan = PlanGroups(members_, rules);
    for (Member& member : members_) {
      member.group = member.index = -1;
      member.group_size = 0;
      for (const PlannedGroup& group : plan.groups) {
        const auto found = std::find(group.ranks.begin(), group.ranks.end(), member.rank);
        if (found == group.ranks.end()) continue;
        member.state = MemberState::kActive;
        member.group = group.number;
        member.index = static_cast<int>(found - group.ranks.begin());
        member.group_size = static_cast<int>(group.ranks.size());
      }
    }
    return plan;
  }
  const std::vector<Member>& members() const { return members_; }

 private:
  std::vector<Member> members_;
};

Pool FullPool(int hosts, int ranks_a_host) {
  Pool pool;
  for (int rank = 0; rank < hosts * ranks_a_host; ++rank) pool.Add(rank, rank / ranks_a_host);
  return pool;
}

std::vector<std::vector<int>> Ranks(const GroupPlan& plan) {
  std::vector<std::vector<int>> ranks;
  for (const PlannedGroup& group : plan.groups) ranks.push_back(group.ranks);
  return ranks;
}

std::vector<std::size_t> Sizes(const GroupPlan& plan) {
  std::vector<std::size_t> sizes;
  for (const PlannedGroup& group : plan.groups) sizes.push_back(group.ranks.size());
  std::sort(sizes.rbegin(), sizes.rend());
  return sizes;
}

TEST(Membership, GroupsOfTheWantedDegreeWithinHosts) {
  Pool pool = FullPool(2, 4);
  const GroupPlan plan = pool.Plan({.degree = 2, .heads = 24});
  EXPECT_THAT(Ranks(plan), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(6, 7)));
  EXPECT_EQ(plan.groups[3].host, 1);
  EXPECT_FALSE(plan.groups[0].unchanged) << "it is new";
  const GroupPlan same = pool.Plan({.degree = 2, .heads = 24});
  EXPECT_EQ(Ranks(same), Ranks(plan));
  for (const PlannedGroup& group : same.groups) EXPECT_TRUE(group.unchanged);
}

TEST(Membership, AStandbyTakesTheEmptyPlaceAndNobodyElseMoves) {
  Pool pool = FullPool(1, 8);
  pool.Add(8, 0, MemberState::kParked);
  pool.Add(9, 1, MemberState::kParked);
  const GroupRules rules = {.degree = 4, .heads = 24, .active_per_host = {{0, 8}, {1, 1}}};
  EXPECT_THAT(pool.Plan(rules).parked, ElementsAre(8));
  pool.Remove(5);
  const GroupPlan plan = pool.Plan(rules);
  EXPECT_THAT(Ranks(plan), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 8, 6, 7), ElementsAre(9)));
  EXPECT_TRUE(plan.groups[0].unchanged);
  EXPECT_FALSE(plan.groups[1].unchanged);
  EXPECT_THAT(plan.parked, IsEmpty());
}

TEST(Membership, WhoIsParkedWaitsForALossOnItsOwnHostOrElsewhere) {
  Pool pool = FullPool(1, 6);
  for (const int rank : {6, 7}) pool.Add(rank, 1);
  for (const int rank : {8, 9}) pool.Add(rank, 1, MemberState::kParked);
  const GroupRules rules = {.degree = 2, .heads = 24, .active_per_host = {{0, 6}, {1, 2}}};
  EXPECT_THAT(pool.Plan(rules).parked, ElementsAre(8, 9)) << "the other host has more ranks, and nobody is missing";
  pool.Remove(6);
  GroupPlan plan = pool.Plan(rules);
  EXPECT_THAT(Ranks(plan), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5), ElementsAre(8, 7)));
  EXPECT_THAT(plan.parked, ElementsAre(9));
  pool.Remove(0);
  plan = pool.Plan(rules);
  EXPECT_THAT(Sizes(plan), ElementsAre(2, 2, 2, 1, 1));
  EXPECT_THAT(plan.parked, IsEmpty());
}

TEST(Membership, AHostThatIsLostWholeIsMissed) {
  Pool pool = FullPool(2, 2);
  for (const int rank : {4, 5, 6}) pool.Add(rank, 2, MemberState::kParked);
  const GroupRules rules = {.degree = 1, .heads = 4, .active_per_host = {{0, 2}, {1, 2}, {2, 0}}};
  EXPECT_THAT(pool.Plan(rules).parked, ElementsAre(4, 5, 6));
  pool.Remove(2);
  pool.Remove(3);
  EXPECT_THAT(pool.Plan(rules).parked, ElementsAre(6));
}

TEST(Membership, TheFirstRankOfAGroupIsReplacedToo) {
  Pool pool = FullPool(1, 4);
  pool.Add(4, 0, MemberState::kParked);
  const GroupRules rules = {.degree = 4, .heads = 4, .active_per_host = {{0, 4}}};
  pool.Plan(rules);
  pool.Remove(0);
  EXPECT_THAT(Ranks(pool.Plan(rules)), ElementsAre(ElementsAre(4, 1, 2, 3)));
}

TEST(Membership, WithoutStandbysTheSurvivorsMakeTheLargestAllowedGroups) {
  Pool pool = FullPool(1, 8);
  const GroupRules rules = {.degree = 4, .heads = 4};
  pool.Plan(rules);
  pool.Remove(2);
  const GroupPlan plan = pool.Plan(rules);
  EXPECT_THAT(Ranks(plan), ElementsAre(ElementsAre(0, 1), ElementsAre(4, 5, 6, 7), ElementsAre(3)));
  EXPECT_TRUE(plan.groups[1].unchanged);
  pool.Remove(5);  // the other group breaks as well: 3 + 2 + 1 ranks make 4 + 2
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(4, 2));
}

// R5 of the fault scenarios, with 24 heads: 7, 5 are no divisors.
TEST(Membership, OddSurvivorsAndBack) {
  Pool pool = FullPool(1, 8);
  const GroupRules rules = {.degree = 8, .heads = 24};
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(8));
  pool.Remove(7);
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(6, 1));
  pool.Remove(0);
  pool.Remove(3);
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(4, 1));
  pool.Remove(1);
  pool.Remove(2);
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(3));
  pool.Remove(4);
  pool.Remove(5);
  EXPECT_THAT(Ranks(pool.Plan(rules)), ElementsAre(ElementsAre(6)));
  for (const int rank : {10, 11}) pool.Add(rank, 0);
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(3));
  for (const int rank : {12, 13}) pool.Add(rank, 0, MemberState::kParked);
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(4, 1));
  for (const int rank : {14, 15, 16}) pool.Add(rank, 0);
  EXPECT_THAT(Sizes(pool.Plan(rules)), ElementsAre(8));
}

TEST(Membership, WhoLeavesIsInNoGroup) {
  Pool pool = FullPool(1, 4);
  pool.Plan({.degree = 2, .heads = 2});
  pool.SetState(1, MemberState::kLeaving);
  const GroupPlan plan = pool.Plan({.degree = 2, .heads = 2});
  EXPECT_THAT(Ranks(plan), ElementsAre(ElementsAre(0), ElementsAre(2, 3)));
  EXPECT_THAT(plan.parked, IsEmpty());
  EXPECT_TRUE(plan.groups[1].unchanged);
}

TEST(Membership, AnotherDegreeRegroups) {
  Pool pool = FullPool(1, 4);
  pool.Plan({.degree = 2, .heads = 4});
  EXPECT_THAT(Ranks(pool.Plan({.degree = 4, .heads = 4})), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(Sizes(pool.Plan({.degree = 1, .heads = 4})), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(GroupSizes(11, 8, 24), ElementsAre(8, 3));
  EXPECT_THAT(GroupSizes(0, 8, 24), IsEmpty());
}

TEST(Membership, AnImpossibleListIsABug) {
  EXPECT_THROW(PlanGroups({{.rank = 1}, {.rank = 1}}, {}), InternalError);
  const Member first = {.rank = 0, .host = 0, .group = 3, .index = 0, .group_size = 2};
  Member second = {.rank = 1, .host = 1, .group = 3, .index = 1, .group_size = 2};
  EXPECT_THROW(PlanGroups({first, second}, {}), InternalError) << "spans hosts";
  second.host = 0;
  second.index = 0;
  EXPECT_THROW(PlanGroups({first, second}, {}), InternalError) << "one place twice";
  EXPECT_THROW(PlanGroups({}, {.degree = 0}), InternalError);
}

// Random losses, notices, arrivals; the plan's rules after each.
TEST(Membership, RandomChangesKeepTheRules) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    constexpr std::array<int, 4> kHeads = {1, 4, 16, 24};
    GroupRules rules = {
        .degree = 1 + pick(8), .heads = kHeads[static_cast<std::size_t>(pick(4))], .active_per_host = {}};
    const int hosts = 1 + pick(3);
    const bool all = pick(3) == 0;
    int wanted = 0;  // on all hosts
    for (int host = 0; host < hosts && !all; ++host) wanted += rules.active_per_host[host] = pick(9);
    Pool pool;
    int next_rank = 0;
    std::vector<PlannedGroup> before;
    for (int change = 0; change < 20; ++change) {
      for (int joined = pick(change == 0 ? 20 : 4); joined > 0; --joined) {
        pool.Add(next_rank++, pick(hosts), pick(2) == 0 ? MemberState::kParked : MemberState::kActive);
      }
      for (int lost = pick(4); lost > 0 && !pool.members().empty(); --lost) {
        const int rank = pool.members()[static_cast<std::size_t>(pick(static_cast<int>(pool.members().size())))].rank;
        pick(4) == 0 ? pool.SetState(rank, MemberState::kLeaving) : pool.Remove(rank);
      }
      if (pick(10) == 0) rules.degree = 1 + pick(8);
      std::vector<Member> members = pool.members();
      const GroupPlan plan = pool.Plan(rules);

      std::shuffle(members.begin(), members.end(), random);
      ASSERT_EQ(PlanGroups(members, rules).groups, plan.groups) << "depends on the order of the members";

      std::map<int, const Member*> by_rank;
      std::map<int, int> active, grouped;
      int working = 0;
      for (const Member& member : members) {
        by_rank[member.rank] = &member;
        active[member.host] += member.state == MemberState::kActive ? 1 : 0;
      }
      std::set<int> placed, numbers;
      std::map<int, std::vector<int>> sizes;
      for (const PlannedGroup& group : plan.groups) {
        ASSERT_TRUE(numbers.insert(group.number).second);
        const int size = static_cast<int>(group.ranks.size());
        ASSERT_EQ(rules.heads % size, 0);
        ASSERT_LE(size, rules.degree);
        sizes[group.host].push_back(size);
        for (const int rank : group.ranks) {
          ASSERT_TRUE(placed.insert(rank).second);
          ASSERT_EQ(by_rank.at(rank)->host, group.host);
          ASSERT_NE(by_rank.at(rank)->state, MemberState::kLeaving);
          ++grouped[group.host];
          ++working;
        }
        const bool was = std::any_of(before.begin(), before.end(), [&](const PlannedGroup& old) {
          return old.number == group.number && old.ranks == group.ranks;
        });
        ASSERT_EQ(group.unchanged, was);
      }
      for (const Member& member : members) {
        ASSERT_TRUE(member.state != MemberState::kActive || placed.contains(member.rank));
        const bool parked = std::count(plan.parked.begin(), plan.parked.end(), member.rank) > 0;
        ASSERT_EQ(parked, member.state == MemberState::kParked && !placed.contains(member.rank));
        const bool enough = !all && grouped[member.host] >= rules.active_per_host.at(member.host) && working >= wanted;
        ASSERT_TRUE(!parked || enough);
      }
      for (auto& [host, of_host] : sizes) {
        std::sort(of_host.rbegin(), of_host.rend());
        ASSERT_EQ(of_host, GroupSizes(grouped[host], rules.degree, rules.heads));
        ASSERT_TRUE(all || grouped[host] <= std::max(rules.active_per_host.at(host), active[host]) ||
                    working <= wanted);
      }
      // A whole group of the wanted degree is not touched.
      for (const PlannedGroup& old : before) {
        const bool whole = std::all_of(old.ranks.begin(), old.ranks.end(), [&](int rank) {
          const auto member = by_rank.find(rank);
          return member != by_rank.end() && member->second->state == MemberState::kActive;
        });
        if (!whole || std::ssize(old.ranks) != rules.degree || rules.heads % rules.degree != 0) continue;
        ASSERT_TRUE(
            std::any_of(plan.groups.begin(), plan.groups.end(),
                        [&](const PlannedGroup& group) { return group.number == old.number && group.unchanged; }))
            << "seed " << seed;
      }
      before = plan.groups;
      const GroupPlan again = pool.Plan(rules);
      ASSERT_EQ(Ranks(again), Ranks(plan)) << "a plan without a change changes something";
    }
  }
}

TEST(BestDegree, ManyRequestsWantNoGroupsAndOneRequestAllRanks) {
  PhaseWork work = {.ranks_of_host = {8}, .requests = 800, .batch = 1, .efficiency = {{2, 0.9}, {4, 0.8}, {8, 0.6}}};
  EXPECT_EQ(BestDegree(work, 24), 1);
  work.requests = 1;
  EXPECT_EQ(BestDegree(work, 24), 8) << "1 / (8 * 0.6) is less than 1 / (4 * 0.8)";
  work.requests = 2;
  EXPECT_EQ(BestDegree(work, 24), 4) << "2 / 4.8 against 1 / 3.2";
  work.efficiency[8] = 0.35;
  work.requests = 1;
  EXPECT_EQ(BestDegree(work, 24), 4) << "a group of 8 is slower than one of 4";
}

TEST(BestDegree, CountsWavesHostsAndWhatIsAllowed) {
  const std::map<int, double> perfect = {{2, 1}, {4, 1}, {8, 1}};
  // 9 requests on 8 ranks: two waves alone (2), three waves of 4 pairs (1.5), five of 2 fours (1.25), nine of 1
  // (1.125).
  EXPECT_EQ(BestDegree({{8}, 9, 1, perfect}, 24), 8);
  EXPECT_EQ(BestDegree({{8}, 9, 1, perfect}, 4), 4) << "8 is no divisor of 4 heads";
  EXPECT_EQ(BestDegree({{8}, 8, 1, perfect}, 24), 1) << "all take the same time: the smallest";
  EXPECT_EQ(BestDegree({{4, 4}, 2, 1, perfect}, 24), 4) << "groups do not span hosts";
  EXPECT_EQ(BestDegree({{8}, 16, 8, perfect}, 24), 4) << "two batches";
  EXPECT_EQ(BestDegree({{}, 5, 1, perfect}, 24), 1);
  EXPECT_EQ(BestDegree({{8}, 0, 1, perfect}, 24), 1);
}

}  // namespace
}  // namespace spotlight
