#include "schedule/request_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<RequestKind> kAllKinds = {RequestKind::kRollout, RequestKind::kExplore, RequestKind::kEvaluate};

Request MakeRequest(std::uint64_t id, RequestKind kind) {
  Request request;
  request.id = id;
  request.kind = kind;
  return request;
}

std::vector<std::uint64_t> Ids(const std::vector<Request>& requests) {
  std::vector<std::uint64_t> ids;
  for (const Request& request : requests) ids.push_back(request.id);
  return ids;
}

// Explore 1, rollouts 2 and 3, evaluation 4.
RequestQueue MixedQueue() {
  RequestQueue queue;
  queue.Add({MakeRequest(1, RequestKind::kExplore), MakeRequest(2, RequestKind::kRollout),
             MakeRequest(3, RequestKind::kRollout), MakeRequest(4, RequestKind::kEvaluate)});
  return queue;
}

TEST(RequestQueue, OrderIsByKindThenFirstInFirstOutAndOneKindALease) {
  RequestQueue queue = MixedQueue();
  EXPECT_THAT(Ids(queue.Lease(1, 8, kAllKinds, 0)), ElementsAre(4));
  EXPECT_THAT(Ids(queue.Lease(1, 1, kAllKinds, 0)), ElementsAre(2));
  EXPECT_THAT(Ids(queue.Lease(2, 8, kAllKinds, 0)), ElementsAre(3));
  EXPECT_THAT(Ids(queue.Lease(2, 8, kAllKinds, 0)), ElementsAre(1));
  EXPECT_THAT(queue.Lease(2, 8, kAllKinds, 0), IsEmpty());
}

TEST(RequestQueue, OnlyAllowedKindsAreLeased) {
  RequestQueue queue = MixedQueue();
  EXPECT_THAT(Ids(queue.Lease(1, 8, {RequestKind::kExplore}, 0)), ElementsAre(1));
  EXPECT_THAT(queue.Lease(1, 8, {RequestKind::kExplore}, 0), IsEmpty());
  EXPECT_THAT(queue.Lease(1, 0, kAllKinds, 0), IsEmpty());
}

TEST(RequestQueue, DoneExactlyOnceAndOnlyByTheHolder) {
  RequestQueue queue = MixedQueue();
  EXPECT_FALSE(queue.Complete(4, 1)) << "queued";
  queue.Lease(1, 1, kAllKinds, 0);
  EXPECT_FALSE(queue.Complete(4, 2)) << "another worker's";
  EXPECT_TRUE(queue.Complete(4, 1));
  EXPECT_FALSE(queue.Complete(4, 1)) << "duplicate";
  EXPECT_FALSE(queue.Complete(99, 1)) << "unknown";
  EXPECT_EQ(queue.Count(RequestState::kDone, RequestKind::kEvaluate), 1U);
  EXPECT_TRUE(queue.Done(RequestKind::kEvaluate));
  EXPECT_FALSE(queue.Done(RequestKind::kRollout));
}

TEST(RequestQueue, CancelDropsQueuedAndFencesLeased) {
  RequestQueue queue = MixedQueue();
  queue.Lease(1, 1, {RequestKind::kRollout}, 0);
  EXPECT_EQ(queue.Cancel(RequestKind::kRollout), 2);
  EXPECT_FALSE(queue.Complete(2, 1));
  EXPECT_THAT(queue.Lease(1, 8, {RequestKind::kRollout}, 0), IsEmpty());
  EXPECT_TRUE(queue.Done(RequestKind::kRollout));
  EXPECT_EQ(queue.Count(RequestState::kCancelled, RequestKind::kRollout), 2U);
  EXPECT_EQ(queue.Cancel(RequestKind::kRollout), 0);
  EXPECT_FALSE(queue.OldestLease().has_value());
}

TEST(RequestQueue, OldestLeaseNamesWorkerAndTime) {
  RequestQueue queue = MixedQueue();
  EXPECT_FALSE(queue.OldestLease().has_value());
  queue.Lease(1, 1, {RequestKind::kEvaluate}, 10);
  queue.Lease(2, 1, {RequestKind::kRollout}, 11);
  EXPECT_EQ(queue.OldestLease()->worker, 1);
  EXPECT_EQ(queue.OldestLease()->since, 10);
  queue.Complete(4, 1);
  EXPECT_EQ(queue.OldestLease()->worker, 2);
}

TEST(RequestQueue, AnIdIsAddedOnce) {
  RequestQueue queue = MixedQueue();
  EXPECT_THROW(queue.Add({MakeRequest(3, RequestKind::kRollout)}), InternalError);
}

// Random events against a model that is as simple as can be: the state of each id in a map.
TEST(RequestQueue, RandomEventsKeepEveryRequestInOneState) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](unsigned bound) { return random() % bound; };
    RequestQueue queue;
    std::map<std::uint64_t, std::pair<RequestState, int>> model;  // state, holder
    std::map<std::uint64_t, RequestKind> kinds;
    std::map<std::uint64_t, int> times_done;
    for (int event = 0; event < 400; ++event) {
      const int worker = static_cast<int>(pick(4));
      switch (pick(8)) {
        case 0:
        case 1: {
          const std::uint64_t id = 1000 * (seed + 1) + model.size();
          kinds[id] = kAllKinds[pick(3)];
          queue.Add({MakeRequest(id, kinds[id])});
          model[id] = {RequestState::kQueued, -1};
          break;
        }
        case 2:
        case 3:
          for (const Request& request : queue.Lease(worker, static_cast<int>(pick(4)), {kAllKinds[pick(3)]}, event)) {
            ASSERT_EQ(model.at(request.id).first, RequestState::kQueued);
            model[request.id] = {RequestState::kLeased, worker};
          }
          break;
        case 4:
          if (pick(10) == 0) {
            const RequestKind kind = kAllKinds[pick(3)];
            queue.Cancel(kind);
            for (auto& [id, entry] : model) {
              if (kinds[id] == kind && entry.first != RequestState::kDone) entry = {RequestState::kCancelled, -1};
            }
          }
          break;
        default: {
          if (model.empty()) break;
          const auto chosen =
              std::next(model.begin(), static_cast<std::ptrdiff_t>(pick(static_cast<unsigned>(model.size()))));
          const bool held = chosen->second == std::pair{RequestState::kLeased, worker};
          ASSERT_EQ(queue.Complete(chosen->first, worker), held);
          if (held) {
            chosen->second = {RequestState::kDone, -1};
            ++times_done[chosen->first];
          }
        }
      }
      for (const RequestKind kind : kAllKinds) {
        std::map<RequestState, std::size_t> counts;
        for (const auto& [id, entry] : model) {
          if (kinds[id] == kind) ++counts[entry.first];
        }
        for (const RequestState state :
             {RequestState::kQueued, RequestState::kLeased, RequestState::kDone, RequestState::kCancelled}) {
          ASSERT_EQ(queue.Count(state, kind), counts[state]) << "seed " << seed << " event " << event;
        }
      }
    }
    for (const auto& [id, times] : times_done) EXPECT_EQ(times, 1) << id;
  }
}

}  // namespace
}  // namespace spotlight
