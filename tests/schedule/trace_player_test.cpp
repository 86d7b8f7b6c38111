#include "schedule/trace_player.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = SpotAction::Kind;

SpotTrace Trace(std::vector<TraceEvent> events) {
  SpotTrace trace;
  trace.events = std::move(events);
  int nodes = 0;
  for (const TraceEvent& event : trace.events) trace.most_nodes = std::max(trace.most_nodes, nodes += event.change);
  trace.seconds = trace.events.back().seconds;
  return trace;
}

TEST(TracePlayer, ANodeTakesAFreePlaceAndEmptiesIt) {
  // Node 2 finds no place; its loss changes nothing.
  const SpotTrace trace = Trace({{0, 0, 1}, {0, 1, 1}, {10, 2, 1}, {20, 0, -1}, {30, 2, -1}, {40, 3, 1}, {50, 3, -1}});
  TracePlayer player(trace, {.ranks = 2});
  EXPECT_THAT(player.Due(19.9), IsEmpty());
  EXPECT_THAT(player.Due(40), ElementsAre(SpotAction{20, Kind::kKill, 0}, SpotAction{40, Kind::kReturn, 0}));
  EXPECT_FALSE(player.finished());
  EXPECT_THAT(player.Due(1000), ElementsAre(SpotAction{50, Kind::kKill, 0}));
  EXPECT_TRUE(player.finished());
}

TEST(TracePlayer, ANodeThatComesBackWithoutAPlaceEmptiesNobodyElses) {
  TracePlayer player(Trace({{0, 0, 1}, {10, 0, -1}, {20, 1, 1}, {30, 0, 1}, {40, 0, -1}}), {.ranks = 1});
  EXPECT_THAT(player.actions(), ElementsAre(SpotAction{10, Kind::kKill, 0}, SpotAction{20, Kind::kReturn, 0}));
}

TEST(TracePlayer, WhoIsNotInTheFirstInstantIsKilledAtOnce) {
  TracePlayer player(Trace({{0, 0, 1}, {5, 1, 1}}), {.ranks = 2, .notice_seconds = 3});
  EXPECT_THAT(player.Due(0), ElementsAre(SpotAction{0, Kind::kKill, 1}));
  EXPECT_THAT(player.Due(5), ElementsAre(SpotAction{5, Kind::kReturn, 1}));
}

TEST(TracePlayer, TheNoticeComesBeforeTheLossButNotBeforeTheNode) {
  const SpotTrace trace = Trace({{0, 0, 1}, {60, 0, -1}, {90, 1, 1}, {120, 1, -1}});
  TracePlayer player(trace, {.ranks = 1, .time_scale = 60, .notice_seconds = 0.75});
  EXPECT_THAT(player.actions(), ElementsAre(SpotAction{0.25, Kind::kNotice, 0}, SpotAction{1, Kind::kKill, 0},
                                            SpotAction{1.5, Kind::kReturn, 0}, SpotAction{1.5, Kind::kNotice, 0},
                                            SpotAction{2, Kind::kKill, 0}));
}

TEST(TracePlayer, RanksOfANodeShareItsFate) {
  TracePlayer player(Trace({{0, 0, 1}, {0, 1, 1}, {9, 1, -1}}), {.ranks = 3, .ranks_per_node = 2});
  EXPECT_THAT(player.actions(), ElementsAre(SpotAction{9, Kind::kKill, 2}));
  TracePlayer other(Trace({{0, 0, 1}, {0, 1, 1}, {9, 0, -1}}), {.ranks = 3, .ranks_per_node = 2});
  EXPECT_THAT(other.actions(), ElementsAre(SpotAction{9, Kind::kKill, 0}, SpotAction{9, Kind::kKill, 1}));
}

TEST(TracePlayer, CountsAreScaledAndTheSeedDrawsTheVictims) {
  // 64 to 17 of 64 nodes: 8 to 2 of 8 ranks, and back.
  const SpotTrace trace = Trace({{0, -1, 64}, {100, -1, -47}, {200, -1, 47}});
  std::map<std::vector<int>, int> seen;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    TracePlayer player(trace, {.ranks = 8, .seed = seed});
    std::vector<int> killed, back;
    for (const SpotAction& action : player.Due(100)) killed.push_back(action.rank);
    for (const SpotAction& action : player.Due(200)) back.push_back(action.rank);
    ASSERT_EQ(killed.size(), 6U);
    ++seen[killed];
    std::sort(killed.begin(), killed.end());
    ASSERT_EQ(killed, back);
    ASSERT_EQ(TracePlayer(trace, {.ranks = 8, .seed = seed}).actions(), player.actions());
  }
  EXPECT_GT(seen.size(), 40U) << "victims do not depend on the seed";
}

TEST(TracePlayer, AResumedRunStartsWithTheStateOfTheTraceAtThatTime) {
  const SpotTrace trace = Trace({{0, 0, 1}, {0, 1, 1}, {0, 2, 1}, {10, 0, -1}, {20, 1, -1}, {30, 3, 1}, {45, 2, -1}});
  TracePlayer player(trace, {.ranks = 3, .notice_seconds = 10, .start_seconds = 40});
  // Node 0's place was taken over at 30, and node 2 has had its notice at 35, of which its new process knows nothing.
  EXPECT_THAT(player.Due(40), ElementsAre(SpotAction{40, Kind::kKill, 1}, SpotAction{40, Kind::kNotice, 2}));
  EXPECT_THAT(player.Due(45), ElementsAre(SpotAction{45, Kind::kKill, 2}));
}

TEST(TracePlayer, NobodyComesToBeKilledAtOnce) {
  const SpotTrace trace = Trace({{0, 0, 1}, {10, 0, -1}, {20, 1, 1}, {30, 1, -1}, {40, 2, 1}});
  TracePlayer late(trace, {.ranks = 1, .notice_seconds = 2});
  EXPECT_THAT(late.Due(35), ElementsAre(SpotAction{8, Kind::kNotice, 0}, SpotAction{10, Kind::kKill, 0}));
  EXPECT_THAT(late.Due(40), ElementsAre(SpotAction{40, Kind::kReturn, 0}));
  TracePlayer very_late(trace, {.ranks = 1});
  EXPECT_THAT(very_late.Due(50), ElementsAre(SpotAction{10, Kind::kKill, 0}, SpotAction{40, Kind::kReturn, 0}));
}

// Of each rank: kill and return by turns, at most one notice before a kill and none else; times in order.
TEST(TracePlayer, RandomTracesGivePossibleActions) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    std::vector<TraceEvent> events = {{0, seed % 2 == 0 ? 0 : -1, 1}};
    std::vector<int> there = {0};
    double now = 0;
    int next = 1;
    for (int event = 0; event < 60; ++event) {
      now += pick(3) * 10;
      if (there.empty() || pick(2) == 0) {
        events.push_back({now, seed % 2 == 0 ? next : -1, 1});
        there.push_back(next++);
      } else {
        const auto gone = there.begin() + pick(static_cast<int>(there.size()));
        events.push_back({now, seed % 2 == 0 ? *gone : -1, -1});
        there.erase(gone);
      }
    }
    const TraceRules rules = {.ranks = 1 + pick(9),
                              .ranks_per_node = 1 + pick(3),
                              .time_scale = 1.0 + pick(4),
                              .notice_seconds = pick(3) * 4.0,
                              .seed = seed};
    TracePlayer player(Trace(events), rules);
    std::vector<bool> alive(static_cast<std::size_t>(rules.ranks), true), warned(alive.size(), false);
    std::vector<double> warned_at(alive.size(), 0);
    double last = 0;
    for (double time = 0; !player.finished(); time += 3) {
      for (const SpotAction& action : player.Due(time)) {
        ASSERT_GE(action.seconds, last);
        ASSERT_LE(action.seconds, time);
        last = action.seconds;
        const auto rank = static_cast<std::size_t>(action.rank);
        ASSERT_LT(rank, alive.size());
        ASSERT_EQ(alive[rank], action.kind != Kind::kReturn) << "seed " << seed;
        if (action.kind == Kind::kNotice) {
          ASSERT_FALSE(warned[rank]);
          warned[rank] = true;
          warned_at[rank] = action.seconds;
        } else {
          if (action.kind == Kind::kKill && action.seconds > 0) {
            ASSERT_EQ(warned[rank], rules.notice_seconds > 0);
            ASSERT_TRUE(!warned[rank] || action.seconds - warned_at[rank] <= rules.notice_seconds + 1e-9);
          }
          warned[rank] = false;
          alive[rank] = action.kind == Kind::kReturn;
        }
      }
    }
  }
}

TEST(TracePlayer, RulesOutOfRangeAreABug) {
  const SpotTrace trace = Trace({{0, 0, 1}});
  EXPECT_THROW(TracePlayer(trace, {.ranks = 0}), InternalError);
  EXPECT_THROW(TracePlayer(trace, {.ranks = 1, .time_scale = 0}), InternalError);
  EXPECT_THROW(TracePlayer(SpotTrace(), {.ranks = 1}), InternalError);
}

}  // namespace
}  // namespace spotlight
