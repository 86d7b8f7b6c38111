#include "schedule/batch_size.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr RequestKind kKind = RequestKind::kRollout;

std::vector<int> Workers(int count) {
  std::vector<int> workers(static_cast<std::size_t>(count));
  std::iota(workers.begin(), workers.end(), 0);
  return workers;
}

// A phase of `requests` with workers of these true seconds a request, which start unmeasured unless `measured`.
// Returns the seconds from when the first worker found nothing to do until all was done.
double Tail(const std::vector<double>& true_seconds, std::size_t requests, bool measured) {
  WorkerSpeeds speeds;
  const std::vector<int> workers = Workers(static_cast<int>(true_seconds.size()));
  for (const int worker : workers) {
    if (measured) speeds.Observe(worker, kKind, 1, true_seconds[static_cast<std::size_t>(worker)]);
  }
  std::multimap<double, int> free_at;
  for (const int worker : workers) free_at.emplace(0, worker);
  double end = 0;
  while (requests > 0) {
    const auto [now, worker] = *free_at.begin();
    free_at.erase(free_at.begin());
    const std::size_t size = speeds.BatchSize(worker, kKind, requests, workers);
    if (size == 0) {  // it asks again a little later
      free_at.emplace(now + 0.01, worker);
      continue;
    }
    const double seconds = static_cast<double>(size) * true_seconds[static_cast<std::size_t>(worker)];
    speeds.Observe(worker, kKind, static_cast<double>(size), seconds);
    requests -= size;
    free_at.emplace(now + seconds, worker);
    end = std::max(end, now + seconds);
  }
  return end - free_at.begin()->first;
}

TEST(BatchSize, HalfOfAFairShareButNotTooFew) {
  const WorkerSpeeds speeds(8);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 400, Workers(4)), 50U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 20, Workers(4)), 8U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 5, Workers(4)), 5U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 0, Workers(4)), 0U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 400, {0}), 400U) << "nobody to share with";
}

TEST(BatchSize, WhatMayBeCutIsGivenOutInSmallParts) {
  WorkerSpeeds speeds(8);
  speeds.Observe(0, kKind, 1, 1);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 128, {0}, true), 32U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 400, Workers(4), true), 25U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 20, {0}, true), 8U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 5, {0}, true), 5U);
  // One worker, cut after `cut` of the 128 requests that it does at one a second: what of them is lost.
  for (int cut = 32; cut <= 128; ++cut) {
    std::size_t done = 0;
    for (std::size_t size = 32; done + size <= static_cast<std::size_t>(cut) && size > 0;
         size = speeds.BatchSize(0, kKind, 128 - done, {0}, true)) {
      done += size;
    }
    EXPECT_LE(cut - static_cast<int>(done), std::max(8, (128 - static_cast<int>(done)) / 4)) << cut;
  }
}

TEST(BatchSize, ATenthForATenthOfTheSpeed) {
  WorkerSpeeds speeds(8);
  for (const int fast : {0, 1, 2}) speeds.Observe(fast, kKind, 10, 10);
  speeds.Observe(3, kKind, 1, 10);
  const std::vector<int> workers = Workers(4);
  const double fast = static_cast<double>(speeds.BatchSize(0, kKind, 6200, workers));
  const double slow = static_cast<double>(speeds.BatchSize(3, kKind, 6200, workers));
  EXPECT_EQ(fast, 1000);
  EXPECT_EQ(slow, 100);
  EXPECT_EQ(speeds.BatchSize(3, kKind, 20, workers), 1U) << "the least that pays shrinks too";
  EXPECT_EQ(speeds.BatchSize(0, kKind, 20, workers), 8U);
  EXPECT_EQ(speeds.BatchSize(0, RequestKind::kExplore, 400, workers), 50U) << "kinds are measured apart";
}

TEST(BatchSize, AWorkerThatWouldEndLastGetsNoneUnlessNobodyElseIsMeasured) {
  WorkerSpeeds speeds(8);
  speeds.Observe(0, kKind, 1, 1);
  speeds.Observe(1, kKind, 1, 100);
  EXPECT_EQ(speeds.BatchSize(1, kKind, 50, {0, 1}), 0U);
  EXPECT_GT(speeds.BatchSize(1, kKind, 500, {0, 1}), 0U);
  EXPECT_EQ(speeds.BatchSize(0, kKind, 50, {0, 1}), 25U);
  speeds.Forget(0);  // it hung
  EXPECT_GT(speeds.BatchSize(1, kKind, 1, {0, 1}), 0U);
}

// G1 of the fault scenarios: one rank ten times slower.
TEST(BatchSize, TheTailIsAtMostARequestOfTheSlowestOrABatchOfTheFastest) {
  for (const std::size_t requests : {100U, 511U, 2000U}) {
    EXPECT_LE(Tail({1, 1, 1, 1}, requests, true), 8) << requests;
    EXPECT_LE(Tail({1, 1, 1, 10}, requests, true), 10) << requests;
    EXPECT_LE(Tail({1, 1.3, 0.7, 2, 10, 40}, requests, true), 40) << requests;
  }
}

TEST(BatchSize, SpeedFollowsTheNewestMeasurements) {
  WorkerSpeeds speeds;
  EXPECT_FALSE(speeds.SecondsPerRequest(0, kKind).has_value());
  speeds.Observe(0, kKind, 4, 8);
  EXPECT_DOUBLE_EQ(*speeds.SecondsPerRequest(0, kKind), 2);
  speeds.Observe(0, kKind, 1, 12);
  EXPECT_DOUBLE_EQ(*speeds.SecondsPerRequest(0, kKind), 5);
  for (int i = 0; i < 30; ++i) speeds.Observe(0, kKind, 1, 1);
  EXPECT_NEAR(*speeds.SecondsPerRequest(0, kKind), 1, 1e-3);
  EXPECT_THROW(speeds.Observe(0, kKind, 0, 1), InternalError);
}

TEST(BatchSize, LeaseIsThreeTimesTheExpectedSilence) {
  WorkerSpeeds speeds;
  EXPECT_EQ(speeds.LeaseSeconds(0, kKind, 8, false, 1, 600), 600);
  speeds.Observe(0, kKind, 1, 20);
  EXPECT_EQ(speeds.LeaseSeconds(0, kKind, 8, false, 1, 600), 600) << "how long it is silent is not known";
  speeds.ObserveSilence(0, kKind, 4, true, 8);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, kKind, 8, false, 1, 600), 48);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, kKind, 8, false, 50, 600), 50);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, RequestKind::kExplore, 8, false, 1, 600), 600) << "kinds are measured apart";
  speeds.ObserveSilence(0, kKind, 4, false, 4);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, kKind, 10, false, 1, 600), 51) << "it shortens step by step";
  speeds.ObserveSilence(0, kKind, 4, false, 40);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, kKind, 10, false, 1, 600), 300) << "and lengthens at once";
}

TEST(BatchSize, NewWeightsLengthenALease) {
  WorkerSpeeds speeds;
  speeds.ObserveSilence(0, kKind, 4, true, 8);
  speeds.ObserveSilence(0, kKind, 4, true, 108);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, kKind, 8, false, 1, 600), 48);
  EXPECT_DOUBLE_EQ(speeds.LeaseSeconds(0, kKind, 8, true, 1, 600), 348);
  EXPECT_EQ(speeds.LeaseSeconds(1, kKind, 8, true, 1, 600), 600);
  speeds.Forget(0);
  EXPECT_EQ(speeds.LeaseSeconds(0, kKind, 8, true, 1, 600), 600);
}

}  // namespace
}  // namespace spotlight
