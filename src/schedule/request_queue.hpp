// The queue of requests: who denoises what, and until when.
//
// Every request is queued, leased, done or cancelled; it becomes done exactly once, and only through a lease. A lease
// is the right of one worker to one request. It runs out at its deadline unless a sign of its worker (as a commit, the
// request's denoising state after more steps than before) renews it. Then others may have the request, but the worker
// may just be slow: until it is lost, leaves or asks anew its lease is overdue, what it brings still counts, and its
// next sign renews the lease. Each lease has its own epoch, so an answer that comes after its end is recognised and
// refused. Near the end of a phase an idle worker may get a second lease on what another one is slow with. However many
// work on a request, the first result wins.
//
// Order: evaluation before rollouts before exploration (others wait for evaluation and rollouts, nobody waits for
// exploration). Within a kind, requests that have come further are first, and of equal steps what came back from a lost
// worker is first, then first in, first out; what is overdue is last, as its worker may still bring it. Pure: time
// comes in as an argument, in seconds of a monotonic clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/request.hpp"

namespace spotlight {

enum class RequestState : std::uint8_t { kQueued, kLeased, kDone, kCancelled };
inline constexpr std::size_t kRequestKinds = 3;
inline constexpr std::size_t kRequestStates = 4;

class RequestQueue {
 public:
  // Queues behind what is there; `steps` are already done of each (committed by an earlier run). Ids must be new in the
  // run (SPOTLIGHT_REQUIRE).
  void Add(const std::vector<Request>& requests, std::uint32_t steps = 0);

  // Leases at most `capacity` queued requests of the `allowed` kinds to `worker` until now + seconds, or, after each
  // accepted commit, until `seconds` after it. All of one call are of one kind and have the same number of steps done,
  // so that they can be denoised as one batch; each carries the epoch of its lease.
  std::vector<Request> Lease(int worker, int capacity, const std::vector<RequestKind>& allowed, double now,
                             double seconds);

  // As Lease, but a second lease on requests that another worker alone has had for longer than `older_than` seconds
  // without a commit; those that wait longest first. Empty while a request of the allowed kinds is queued.
  std::vector<Request> LeaseAgain(int worker, int capacity, const std::vector<RequestKind>& allowed, double now,
                                  double seconds, double older_than);

  // A sign of the holder: its lease is renewed. False: it has none, live or overdue.
  bool Renew(std::uint64_t id, std::uint32_t epoch, double now);

  // A commit of `steps` done. True: the lease counts and nobody has committed as many steps; it is renewed. False: the
  // commit must not be kept.
  bool Progress(std::uint64_t id, std::uint32_t epoch, std::uint32_t steps, double now);

  // The commits of a leased request after `steps` (at most StepsDone) cannot be read any more: its holders, and whoever
  // gets it next, go on from there.
  void Rewind(std::uint64_t id, std::uint32_t steps);

  // True, once for each request: the lease counts, and the request is now done. False: unknown, a duplicate,
  // cancelled, or the lease has ended; the result must not be used.
  bool Complete(std::uint64_t id, std::uint32_t epoch);

  // Whether a lease has neither ended nor run out; and whether a result or a commit of it would still be looked at.
  bool IsLive(std::uint64_t id, std::uint32_t epoch) const;
  bool Counts(std::uint64_t id, std::uint32_t epoch) const;

  // Ends all leases of a worker that is lost, has left, was regrouped or asks anew. The requests that nobody else has a
  // lease on are queued again; these are returned, in the order of their ids.
  std::vector<std::uint64_t> Release(int worker);

  struct Expired {
    int worker;
    std::uint64_t id;
    friend bool operator==(const Expired&, const Expired&) = default;
  };
  // The leases whose deadline is not after `now` are overdue, the oldest deadline first; what nobody else has a lease
  // on is queued again.
  std::vector<Expired> Expire(double now);

  // Drops the queued requests of a kind and ends the leases of the others. How many of both.
  int Cancel(RequestKind kind);

  std::size_t Count(RequestState state, RequestKind kind) const;
  // Nothing of this kind is queued or leased.
  bool Done(RequestKind kind) const;
  // Live leases of this worker.
  std::size_t Leased(int worker) const;
  // Committed steps of a request that was added (SPOTLIGHT_REQUIRE).
  std::uint32_t StepsDone(std::uint64_t id) const;

 private:
  struct Holding {
    int worker;
    std::uint32_t epoch;
    double since;    // of the lease, or of its last commit
    double seconds;  // the lease's length
    double Deadline() const { return since + seconds; }
  };
  struct Entry {
    Request request;  // its epoch: of the newest lease
    RequestState state = RequestState::kQueued;
    std::uint32_t steps = 0;
    std::vector<Holding> holdings;  // kLeased: 1 or 2, the older lease first
    std::vector<Holding> overdue;   // kQueued, kLeased: any number
  };

  void SetState(Entry& entry, RequestState state);
  Request Give(Entry& entry, int worker, double now, double seconds);
  // Ends one lease; that of a request which is left with none must get another state.
  void End(Entry& entry, std::size_t holding);
  void EndAll(Entry& entry);
  void EndOverdue(Entry& entry, int worker);
  void Requeue(Entry& entry);
  void Unqueue(Entry& entry);
  // A request with one lease is found by the time since when it waits for a commit, every lease by its deadline.
  void Index(const Entry& entry);
  void Unindex(const Entry& entry);

  std::unordered_map<std::uint64_t, Entry> entries_;
  // By kind and steps done.
  std::array<std::map<std::uint32_t, std::deque<std::uint64_t>, std::greater<>>, kRequestKinds> queued_;
  std::array<std::array<std::size_t, kRequestStates>, kRequestKinds> counts_{};
  std::unordered_map<int, std::set<std::uint64_t>> held_, overdue_;              // by worker
  std::set<std::tuple<double, std::uint64_t, std::uint32_t>> by_deadline_;       // (deadline, id, epoch)
  std::array<std::set<std::pair<double, std::uint64_t>>, kRequestKinds> alone_;  // (since, id)
};

}  // namespace spotlight
