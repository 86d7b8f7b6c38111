// The queue of requests: who denoises what.
//
// Every request is queued, leased, done or cancelled; it becomes done exactly once, and only through the worker that
// holds its lease. Order: evaluation before rollouts before exploration (others wait for evaluation and rollouts,
// nobody waits for exploration); first in, first out within a kind. Pure: time comes in as an argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/request.hpp"

namespace spotlight {

enum class RequestState : std::uint8_t { kQueued, kLeased, kDone, kCancelled };
inline constexpr std::size_t kRequestKinds = 3;
inline constexpr std::size_t kRequestStates = 4;

class RequestQueue {
 public:
  // Queues behind what is there. Ids must be new in the run (SPOTLIGHT_REQUIRE).
  void Add(const std::vector<Request>& requests);

  // Leases at most `capacity` queued requests of the `allowed` kinds to `worker` at time `now` (seconds, any origin).
  // All of one lease are of one kind, so that they can be denoised as one batch.
  std::vector<Request> Lease(int worker, int capacity, const std::vector<RequestKind>& allowed, double now);

  // True: `worker` held the lease of request `id`, which is now done. False: unknown, a duplicate, cancelled, or not
  // leased to this worker; its result must not be used.
  bool Complete(std::uint64_t id, int worker);

  // Drops the queued requests of a kind and fences the leased ones: their results will be refused. How many of both.
  int Cancel(RequestKind kind);

  std::size_t Count(RequestState state, RequestKind kind) const;
  // Nothing of this kind is queued or leased.
  bool Done(RequestKind kind) const;

  struct Outstanding {
    int worker;
    double since;  // seconds
  };
  // The oldest lease of all, if any: its worker may be hung or lost.
  std::optional<Outstanding> OldestLease() const;

 private:
  struct Entry {
    Request request;
    RequestState state = RequestState::kQueued;
    int worker = -1;
  };

  void SetState(Entry& entry, RequestState state);

  std::unordered_map<std::uint64_t, Entry> entries_;
  std::array<std::deque<std::uint64_t>, kRequestKinds> queued_;
  std::array<std::array<std::size_t, kRequestStates>, kRequestKinds> counts_{};
  std::map<std::uint64_t, double> leased_since_;  // by id
};

}  // namespace spotlight
