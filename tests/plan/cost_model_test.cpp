#include "plan/cost_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

using testing::DoubleEq;
using testing::Optional;

// 0.1 s a real pass, 0.01 s a cached one, 0.02 s a decoding, 0.03 s a reward; halved with every doubling of the degree
// only where a pass is concerned.
CostReport Report(int degree) {
  const double pass = 0.1 / degree;
  return {degree, 4, 24, 24 * pass, 16, 16 * pass / 10, 4 * 0.02, 4 * 0.03};
}

TEST(CostModel, KnowsNothingBeforeTheFirstReport) {
  CostModel model(10);
  EXPECT_FALSE(model.Seconds({8, 6}, 2, {{1, 4}}).has_value());
  model.Observe({.degree = 1, .requests = 4, .decode_seconds = 1});
  EXPECT_FALSE(model.Seconds({8, 6}, 2, {{1, 4}}).has_value());
}

TEST(CostModel, EqualSlotsTakeTheirShareRoundedUp) {
  CostModel model(10);
  model.Observe(Report(1));
  const double request = 6 * 0.1 + 4 * 0.01 + 0.02 + 0.03;
  EXPECT_THAT(model.Seconds({8, 6}, 2, {{1, 4}}), Optional(DoubleEq(4 * request)));
  EXPECT_THAT(model.Seconds({9, 6}, 1, {{1, 4}}), Optional(DoubleEq(3 * request)));  // 9 requests on 4 slots
  EXPECT_THAT(model.Seconds({8, 10}, 1, {{1, 8}}), Optional(DoubleEq(10 * 0.1 + 0.02 + 0.03)));
  EXPECT_THAT(model.Seconds({8, 6}, 1, {{1, 0}}), Optional(std::numeric_limits<double>::infinity()));
  EXPECT_THAT(model.Seconds({8, 6}, 1, {}), Optional(std::numeric_limits<double>::infinity()));
}

TEST(CostModel, UnknownPartsAreGuessed) {
  CostModel model(10);
  model.Observe({.degree = 2, .requests = 4, .real_passes = 40, .real_seconds = 4});
  EXPECT_THAT(model.Seconds({1, 6}, 1, {{2, 1}}), Optional(DoubleEq(6 * 0.1 + 4 * 0.005)));
  EXPECT_THAT(model.Seconds({1, 10}, 1, {{1, 1}}), Optional(DoubleEq(2.0)));  // half the degree, double the seconds
  EXPECT_THAT(model.Seconds({1, 10}, 1, {{4, 1}}), Optional(DoubleEq(0.5)));
}

TEST(CostModel, FollowsItsReports) {
  CostModel model(10);
  model.Observe(Report(1));
  const double before = model.Seconds({8, 10}, 1, {{1, 1}}).value();
  CostReport slower = Report(1);
  slower.real_seconds *= 2;
  model.Observe(slower);
  EXPECT_NEAR(model.Seconds({8, 10}, 1, {{1, 1}}).value() - before, 8 * 10 * 0.2 * 0.1, 1e-12);
  for (int i = 0; i < 100; ++i) model.Observe(slower);
  EXPECT_NEAR(model.Seconds({8, 10}, 1, {{1, 1}}).value() - before, 8 * 10 * 0.1, 1e-6);
}

// Requests one by one, each to the slot that is free first.
double PullOneByOne(int requests, const std::vector<double>& slots) {
  std::vector<double> free(slots.size(), 0);
  double end = 0;
  for (int i = 0; i < requests; ++i) {
    const auto next = std::min_element(free.begin(), free.end()) - free.begin();
    free[static_cast<std::size_t>(next)] += slots[static_cast<std::size_t>(next)];
    end = std::max(end, free[static_cast<std::size_t>(next)]);
  }
  return end;
}

TEST(CostModel, SlotsOfSeveralDegreesPullTheirWork) {
  CostModel model(1);
  for (const auto& [degree, seconds] : {std::pair(1, 1.0), std::pair(2, 0.57), std::pair(4, 0.31)}) {
    model.Observe({.degree = degree, .requests = 1, .real_passes = 1, .real_seconds = seconds});
  }
  for (std::uint64_t trial = 0; trial < 300; ++trial) {
    SlotCounts counts;
    std::vector<double> slots;
    for (const auto& [degree, seconds] : {std::pair(1, 1.0), std::pair(2, 0.57), std::pair(4, 0.31)}) {
      counts[degree] = static_cast<int>(UniformInt(trial, static_cast<std::uint64_t>(degree), 5));
      slots.insert(slots.end(), static_cast<std::size_t>(counts[degree]), seconds);
    }
    if (slots.empty()) continue;
    const int requests = 1 + static_cast<int>(UniformInt(trial, 9, 200));
    const double seconds = model.Seconds({requests, 1}, 1, counts).value();
    // Equal slots start together, so the last round may have started on one more slot than there is work for.
    EXPECT_GE(seconds, PullOneByOne(requests, slots) - 1e-9) << "trial " << trial;
    EXPECT_LE(seconds, PullOneByOne(requests + static_cast<int>(slots.size()), slots) + 1e-9) << "trial " << trial;
  }
}

TEST(CostModel, CountsSlotsByDegree) { EXPECT_EQ(CountSlots(std::vector<int>{2, 1, 2}), (SlotCounts{{1, 1}, {2, 2}})); }

TEST(CostModel, StateGivesTheSameCosts) {
  CostModel model(10);
  model.Observe(Report(1));
  model.Observe({.degree = 4, .requests = 1, .real_passes = 10, .real_seconds = 0.3});
  CostModel copy(10);
  copy.Observe(Report(8));
  copy.Restore(model.State());
  EXPECT_EQ(copy.State(), model.State());
  EXPECT_EQ(copy.Seconds({8, 6}, 3, {{1, 2}, {4, 3}}), model.Seconds({8, 6}, 3, {{1, 2}, {4, 3}}));
}

TEST(CostModel, RefusesNumbersThatAreNone) {
  CostModel model(10);
  CostReport report = Report(1);
  report.real_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(model.Observe(report), InternalError);
  report = Report(1);
  report.reward_seconds = -1;
  EXPECT_THROW(model.Observe(report), InternalError);
  report = Report(1);
  report.degree = 0;
  EXPECT_THROW(model.Observe(report), InternalError);
}

}  // namespace
}  // namespace spotlight
