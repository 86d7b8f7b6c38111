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

  // The longest time that `worker` gave no sign in a batch of `requests`: between lease, commits and result, so that
  // loading, steps between two commits, decoding and judging all count. loaded: it had new weights to load. Both > 0.
  void ObserveSilence(int worker, RequestKind kind, double requests, bool loaded, double seconds);

  // For one that is lost, regrouped or whose lease ran out: its speed is unknown again.
  void Forget(int worker) { speeds_.erase(worker); }

  std::optional<double> SecondsPerRequest(int worker, RequestKind kind) const;

  // How many of `queued` requests to lease to `worker`; 0 only if a faster worker is about to take them. `sharers`: all
  // workers that ask for this kind now, with `worker`; one without a measured speed counts as their average. cut: they
  // may be told to stop before all is done.
  std::size_t BatchSize(int worker, RequestKind kind, std::size_t queued, const std::vector<int>& sharers,
                        bool cut = false) const;

  // Length of a lease on `requests` that are denoised together: three times the longest silence that is expected, at
  // least `floor`; `unmeasured` if the worker's is unknown. loads: it has new weights to load. Seconds.
  double LeaseSeconds(int worker, RequestKind kind, std::size_t requests, bool loads, double floor,
                      double unmeasured) const;

 private:
  struct Speed {
    std::array<double, kRequestKinds> seconds{};  // a request; 0: unknown
    std::array<double, kRequestKinds> silence{};  // likewise
    double loading = 0;                           // by so much new weights lengthen a silence
  };
  std::size_t smallest_;
  std::map<int, Speed> speeds_;  // by worker
};

}  // namespace spotlight
