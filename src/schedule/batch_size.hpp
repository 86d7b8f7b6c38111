// How many requests a worker gets at a time, and for how long, from its measured speed.
//
// A worker asks again when it is done, so batches are half of a fair share of what is queued, where fair is
// proportional to speed: the batches shrink towards the end of a phase, and its last one is short. A worker that would
// take longer for one request than all others for everything that is queued gets none. Where what is in work may be cut
// and lost, batches are a quarter, and so for a worker alone: at the cut a quarter of what is left is gone at most.
// Smaller ones cost the matrix units more than they save. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "base/request.hpp"
#include "schedule/request_queue.hpp"

namespace spotlight {

class WorkerSpeeds {
 public:
  // smallest: fewer requests a batch waste the matrix units; what the fastest worker gets at least.
  explicit WorkerSpeeds(std::size_t smallest = 8) : smallest_(smallest) {}

  // `worker` took `seconds` for `requests` whole requests of a kind. Weighted exponentially: the newest counts 0.3.
  // Both > 0 (SPOTLIGHT_REQUIRE).
  void Observe(int worker, RequestKind kind, double requests, double seconds);

  // For one that is lost, regrouped or whose lease ran out: its speed is unknown again.
  void Forget(int worker) { seconds_.erase(worker); }

  std::optional<double> SecondsPerRequest(int worker, RequestKind kind) const;

  // How many of `queued` requests to lease to `worker`; 0 only if a faster worker is about to take them. `sharers`: all
  // workers that ask for this kind now, with `worker`; one without a measured speed counts as their average. cut: they
  // may be told to stop before all is done.
  std::size_t BatchSize(int worker, RequestKind kind, std::size_t queued, const std::vector<int>& sharers,
                        bool cut = false) const;

  // Length of a lease on `requests` that are denoised together and committed `commits` (>= 1) times: three times the
  // expected seconds between two commits, at least `floor` (which must cover what follows the last step: decoding and
  // scoring); `unmeasured` if the worker's speed is unknown, as its first batch also loads weights. Seconds.
  double LeaseSeconds(int worker, RequestKind kind, std::size_t requests, int commits, double floor,
                      double unmeasured) const;

 private:
  std::size_t smallest_;
  std::map<int, std::array<double, kRequestKinds>> seconds_;  // a request, by worker; 0: unknown
};

}  // namespace spotlight
