#include "schedule/request_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::vector<RequestKind> kAllKinds = {RequestKind::kRollout, RequestKind::kExplore, RequestKind::kEvaluate};
const std::vector<RequestKind> kRollouts = {RequestKind::kRollout};

Request MakeRequest(std::uint64_t id, RequestKind kind = RequestKind::kRollout) {
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
  queue.Add(
      {MakeRequest(1, RequestKind::kExplore), MakeRequest(2), MakeRequest(3), MakeRequest(4, RequestKind::kEvaluate)});
  return queue;
}

RequestQueue Rollouts(std::uint64_t count) {
  RequestQueue queue;
  for (std::uint64_t id = 1; id <= count; ++id) queue.Add({MakeRequest(id)});
  return queue;
}

TEST(RequestQueue, OrderIsByKindThenFirstInFirstOutAndOneKindALease) {
  RequestQueue queue = MixedQueue();
  EXPECT_THAT(Ids(queue.Lease(1, 8, kAllKinds, 0, 10)), ElementsAre(4));
  EXPECT_THAT(Ids(queue.Lease(1, 1, kAllKinds, 0, 10)), ElementsAre(2));
  EXPECT_THAT(Ids(queue.Lease(2, 8, kAllKinds, 0, 10)), ElementsAre(3));
  EXPECT_THAT(Ids(queue.Lease(2, 8, kAllKinds, 0, 10)), ElementsAre(1));
  EXPECT_THAT(queue.Lease(2, 8, kAllKinds, 0, 10), IsEmpty());
  EXPECT_EQ(queue.Leased(1), 2U);
  EXPECT_EQ(queue.Leased(3), 0U);
}

TEST(RequestQueue, OnlyAllowedKindsAreLeased) {
  RequestQueue queue = MixedQueue();
  EXPECT_THAT(Ids(queue.Lease(1, 8, {RequestKind::kExplore}, 0, 10)), ElementsAre(1));
  EXPECT_THAT(queue.Lease(1, 8, {RequestKind::kExplore}, 0, 10), IsEmpty());
  EXPECT_THAT(queue.Lease(1, 0, kAllKinds, 0, 10), IsEmpty());
}

TEST(RequestQueue, DoneExactlyOnceAndOnlyWithALiveLease) {
  RequestQueue queue = Rollouts(1);
  EXPECT_FALSE(queue.Complete(1, 0)) << "queued";
  const std::uint32_t epoch = queue.Lease(1, 1, kRollouts, 0, 10).at(0).epoch;
  EXPECT_FALSE(queue.Complete(1, epoch + 1)) << "no such lease";
  EXPECT_TRUE(queue.Complete(1, epoch));
  EXPECT_FALSE(queue.Complete(1, epoch)) << "duplicate";
  EXPECT_FALSE(queue.Complete(99, epoch)) << "unknown";
  EXPECT_EQ(queue.Count(RequestState::kDone, RequestKind::kRollout), 1U);
  EXPECT_TRUE(queue.Done(RequestKind::kRollout));
  EXPECT_EQ(queue.Leased(1), 0U);
}

TEST(RequestQueue, ReleasedRequestsAreFirstAndTheirLateAnswersAreRefused) {
  RequestQueue queue = Rollouts(5);
  const std::vector<Request> lost = queue.Lease(1, 3, kRollouts, 0, 10);
  EXPECT_THAT(queue.Release(1), ElementsAre(1, 2, 3));
  EXPECT_THAT(queue.Release(1), IsEmpty());
  const std::vector<Request> again = queue.Lease(2, 4, kRollouts, 1, 10);
  EXPECT_THAT(Ids(again), ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(queue.Complete(1, lost[0].epoch));
  EXPECT_FALSE(queue.Progress(2, lost[1].epoch, 7, 1));
  EXPECT_EQ(queue.StepsDone(2), 0U);
  EXPECT_TRUE(queue.Complete(1, again[0].epoch));
}

TEST(RequestQueue, ALeaseEndsAtItsDeadlineUnlessACommitRenewsIt) {
  RequestQueue queue = Rollouts(2);
  const std::vector<Request> leased = queue.Lease(7, 2, kRollouts, 0, 10);
  EXPECT_THAT(queue.Expire(9.9), IsEmpty());
  EXPECT_TRUE(queue.Progress(2, leased[1].epoch, 1, 9));
  EXPECT_THAT(queue.Expire(10), ElementsAre(RequestQueue::Expired{7, 1}));
  EXPECT_FALSE(queue.IsLive(1, leased[0].epoch));
  EXPECT_TRUE(queue.IsLive(2, leased[1].epoch));
  EXPECT_FALSE(queue.Progress(2, leased[1].epoch, 1, 18)) << "the same steps again";
  EXPECT_THAT(queue.Expire(19), ElementsAre(RequestQueue::Expired{7, 2}));
  EXPECT_EQ(queue.Leased(7), 0U);
}

TEST(RequestQueue, AnySignOfItsHolderRenewsALease) {
  RequestQueue queue = Rollouts(1);
  const std::uint32_t epoch = queue.Lease(7, 1, kRollouts, 0, 10).at(0).epoch;
  EXPECT_TRUE(queue.Renew(1, epoch, 9));
  EXPECT_FALSE(queue.Renew(1, epoch + 1, 9));
  EXPECT_THAT(queue.Expire(18.9), IsEmpty());
  EXPECT_THAT(queue.Expire(19), ElementsAre(RequestQueue::Expired{7, 1}));
}

TEST(RequestQueue, WhatAnOverdueWorkerBringsCountsUntilItEndsOrSomebodyElseWasFirst) {
  RequestQueue queue = Rollouts(4);
  const std::vector<Request> slow = queue.Lease(1, 4, kRollouts, 0, 10);
  queue.Expire(10);
  EXPECT_EQ(queue.Count(RequestState::kQueued, RequestKind::kRollout), 4U);
  EXPECT_TRUE(queue.Complete(1, slow[0].epoch)) << "nobody else has it";
  EXPECT_FALSE(queue.Complete(1, slow[0].epoch)) << "a duplicate";
  const std::vector<Request> others = queue.Lease(2, 2, kRollouts, 11, 10);
  EXPECT_THAT(Ids(others), ElementsAre(2, 3));
  EXPECT_TRUE(queue.Complete(2, slow[1].epoch)) << "somebody else has it, but was not first";
  EXPECT_FALSE(queue.Complete(2, others[0].epoch));
  EXPECT_TRUE(queue.Complete(3, others[1].epoch));
  EXPECT_FALSE(queue.Complete(3, slow[2].epoch));
  EXPECT_FALSE(queue.Done(RequestKind::kRollout));
  EXPECT_THAT(queue.Release(1), IsEmpty()) << "it is lost or asks anew";
  EXPECT_FALSE(queue.Complete(4, slow[3].epoch));
  EXPECT_THAT(Ids(queue.Lease(2, 8, kRollouts, 12, 10)), ElementsAre(4));
}

TEST(RequestQueue, WhatIsOverdueWaitsBehindWhatNobodyHasBegun) {
  RequestQueue queue = Rollouts(4);
  queue.Lease(1, 2, kRollouts, 0, 10);
  queue.Expire(10);
  EXPECT_THAT(Ids(queue.Lease(2, 3, kRollouts, 11, 10)), ElementsAre(3, 4, 1));
}

TEST(RequestQueue, ASignOfAnOverdueWorkerRenewsItsLease) {
  RequestQueue queue = Rollouts(2);
  const std::vector<Request> slow = queue.Lease(1, 2, kRollouts, 0, 10);
  queue.Expire(10);
  EXPECT_TRUE(queue.Progress(1, slow[0].epoch, 3, 11));
  EXPECT_EQ(queue.Leased(1), 1U);
  const std::uint32_t other = queue.Lease(2, 8, kRollouts, 12, 10).at(0).epoch;
  EXPECT_TRUE(queue.Progress(2, slow[1].epoch, 2, 13)) << "beside the other's";
  EXPECT_EQ(queue.Leased(1), 2U);
  EXPECT_EQ(queue.Leased(2), 1U);
  EXPECT_FALSE(queue.Progress(2, other, 2, 14)) << "nothing new";
  EXPECT_THAT(queue.Expire(22), ElementsAre(RequestQueue::Expired{1, 1}, RequestQueue::Expired{2, 2}));
  EXPECT_THAT(queue.Release(1), ElementsAre(2));
  EXPECT_TRUE(queue.Complete(2, other)) << "overdue, too";
  EXPECT_EQ(queue.StepsDone(1), 3U);
}

TEST(RequestQueue, WhatHasComeFurtherIsFirstAndABatchIsAtOneStep) {
  RequestQueue queue = Rollouts(4);
  queue.Add({MakeRequest(5)}, 2);
  const std::vector<Request> leased = queue.Lease(1, 1, kRollouts, 0, 10);
  EXPECT_THAT(Ids(leased), ElementsAre(5));
  const std::vector<Request> three = queue.Lease(1, 3, kRollouts, 0, 10);
  queue.Progress(1, three[0].epoch, 4, 1);
  queue.Progress(3, three[2].epoch, 4, 1);
  queue.Release(1);
  EXPECT_THAT(Ids(queue.Lease(2, 8, kRollouts, 2, 10)), ElementsAre(1, 3));
  EXPECT_EQ(queue.StepsDone(3), 4U);
  EXPECT_THAT(Ids(queue.Lease(2, 8, kRollouts, 2, 10)), ElementsAre(5));
  EXPECT_THAT(Ids(queue.Lease(2, 8, kRollouts, 2, 10)), ElementsAre(2, 4));
}

TEST(RequestQueue, AStragglersRequestsAreLeasedAgainAndTheFirstResultWins) {
  RequestQueue queue = Rollouts(3);
  const std::vector<Request> slow = queue.Lease(1, 2, kRollouts, 0, 100);
  EXPECT_THAT(queue.LeaseAgain(2, 8, kRollouts, 9, 100, 5), IsEmpty()) << "3 is queued";
  queue.Lease(3, 1, kRollouts, 4, 100);
  EXPECT_THAT(queue.LeaseAgain(1, 8, kRollouts, 9, 100, 5), IsEmpty()) << "its own";
  EXPECT_THAT(queue.LeaseAgain(2, 8, {RequestKind::kExplore}, 9, 100, 5), IsEmpty());
  const std::vector<Request> second = queue.LeaseAgain(2, 8, kRollouts, 9, 100, 5);
  EXPECT_THAT(Ids(second), ElementsAre(1, 2)) << "3 is younger";
  EXPECT_THAT(Ids(queue.LeaseAgain(4, 8, kRollouts, 99, 100, 5)), ElementsAre(3)) << "at most two leases a request";
  EXPECT_TRUE(queue.Complete(1, slow[0].epoch));
  EXPECT_FALSE(queue.Complete(1, second[0].epoch));
  EXPECT_TRUE(queue.Complete(2, second[1].epoch));
  EXPECT_FALSE(queue.Complete(2, slow[1].epoch));
  EXPECT_EQ(queue.Leased(1) + queue.Leased(2), 0U);
}

TEST(RequestQueue, ASecondLeaseGoesOnFromTheLastCommitAndOutlivesTheFirst) {
  RequestQueue queue = Rollouts(1);
  const std::uint32_t slow = queue.Lease(1, 1, kRollouts, 0, 20).at(0).epoch;
  EXPECT_TRUE(queue.Progress(1, slow, 3, 1));
  const std::uint32_t second = queue.LeaseAgain(2, 1, kRollouts, 10, 20, 5).at(0).epoch;
  EXPECT_TRUE(queue.Progress(1, second, 4, 11));
  EXPECT_FALSE(queue.Progress(1, slow, 4, 12)) << "nothing new";
  EXPECT_TRUE(queue.Progress(1, slow, 5, 13));
  EXPECT_TRUE(queue.Progress(1, second, 6, 14));
  EXPECT_THAT(queue.Expire(33.5), ElementsAre(RequestQueue::Expired{1, 1}));
  EXPECT_EQ(queue.Count(RequestState::kLeased, RequestKind::kRollout), 1U) << "the second holds it";
  EXPECT_THAT(queue.Release(2), ElementsAre(1));
  EXPECT_EQ(queue.StepsDone(1), 6U);
}

TEST(RequestQueue, AnUnreadableCommitIsDoneAgain) {
  RequestQueue queue = Rollouts(2);
  queue.Progress(1, queue.Lease(1, 1, kRollouts, 0, 10).at(0).epoch, 5, 1);
  EXPECT_THROW(queue.Rewind(1, 6), InternalError);
  EXPECT_THROW(queue.Rewind(2, 0), InternalError) << "not leased";
  queue.Release(1);
  const std::uint32_t epoch = queue.Lease(2, 1, kRollouts, 2, 10).at(0).epoch;
  queue.Rewind(1, 2);
  EXPECT_EQ(queue.StepsDone(1), 2U);
  EXPECT_TRUE(queue.Progress(1, epoch, 3, 3));
  EXPECT_THAT(queue.Release(2), ElementsAre(1));
  EXPECT_THAT(Ids(queue.Lease(3, 2, kRollouts, 4, 10)), ElementsAre(1)) << "it is still further than 2";
}

TEST(RequestQueue, CancelDropsQueuedAndFencesLeased) {
  RequestQueue queue = MixedQueue();
  const std::uint32_t epoch = queue.Lease(1, 1, kRollouts, 0, 10).at(0).epoch;
  EXPECT_EQ(queue.Cancel(RequestKind::kRollout), 2);
  EXPECT_FALSE(queue.Complete(2, epoch));
  EXPECT_FALSE(queue.Renew(2, epoch, 1));
  EXPECT_THAT(queue.Expire(100), IsEmpty());
  EXPECT_THAT(queue.Lease(1, 8, kRollouts, 0, 10), IsEmpty());
  EXPECT_TRUE(queue.Done(RequestKind::kRollout));
  EXPECT_FALSE(queue.Done(RequestKind::kEvaluate));
  EXPECT_EQ(queue.Count(RequestState::kCancelled, RequestKind::kRollout), 2U);
  EXPECT_EQ(queue.Cancel(RequestKind::kRollout), 0);
  EXPECT_EQ(queue.Leased(1), 0U);
}

TEST(RequestQueue, AnIdIsAddedOnceAndMustBeKnown) {
  RequestQueue queue = MixedQueue();
  EXPECT_THROW(queue.Add({MakeRequest(3)}), InternalError);
  EXPECT_THROW(queue.StepsDone(99), InternalError);
}

}  // namespace
}  // namespace spotlight
