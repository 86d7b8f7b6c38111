// Pulls a second that the coordinator's queue of requests sustains, alone, on one core.
//
//   bench_queue [REQUESTS]
//
// A pull is what the queue does for one question of a worker: expire old leases, size the batch, lease it; with it come
// the answers to the worker's last pull: its requests completed, or a commit of each at every step. Between phases all
// requests (100,000 by default) are queued at once; 64 workers ask in turn. The goal is 50,000 pulls a second.
#include <cstdint>
#include <vector>

#include "schedule/batch_size.hpp"
#include "schedule/request_queue.hpp"
#include "timing.hpp"

namespace spotlight {
namespace {

constexpr int kWorkers = 64;
constexpr double kLeaseSeconds = 1;
constexpr RequestKind kKind = RequestKind::kExplore;

struct Counts {
  double pulls = 0, commits = 0;
};

// One phase: all requests, in batches of `batch`, each committed `commits` times.
Counts RunPhase(int requests, int batch, std::uint32_t commits) {
  RequestQueue queue;
  WorkerSpeeds speeds;
  std::vector<int> workers;
  for (int worker = 0; worker < kWorkers; ++worker) {
    workers.push_back(worker);
    speeds.Observe(worker, kKind, 1, 0.1);
  }
  std::vector<Request> all(static_cast<std::size_t>(requests));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].id = i + 1;
    all[i].kind = kKind;
  }
  queue.Add(all);
  std::vector<std::vector<Request>> work(kWorkers);
  Counts counts;
  for (double now = 0; !queue.Done(kKind); now += 1e-5) {
    const int worker = static_cast<int>(counts.pulls) % kWorkers;
    std::vector<Request>& own = work[static_cast<std::size_t>(worker)];
    for (std::uint32_t step = 1; step <= commits; ++step) {
      for (const Request& request : own) counts.commits += queue.Progress(request.id, request.epoch, step, now) ? 1 : 0;
    }
    for (const Request& request : own) queue.Complete(request.id, request.epoch);
    queue.Expire(now);
    const std::size_t size = speeds.BatchSize(worker, kKind, queue.Count(RequestState::kQueued, kKind), workers);
    own = queue.Lease(worker, std::min(batch, static_cast<int>(size)), {kKind}, now, kLeaseSeconds);
    ++counts.pulls;
  }
  return counts;
}

// Idle workers that ask for a straggler's requests and find none that is old enough.
double IdlePullsPerSecond(int requests) {
  RequestQueue queue;
  std::vector<Request> all(static_cast<std::size_t>(requests));
  for (std::size_t i = 0; i < all.size(); ++i) all[i].id = i + 1;
  queue.Add(all);
  queue.Lease(0, requests, {RequestKind::kRollout}, 0, 1000);
  constexpr int kPulls = 1'000'000;
  std::size_t given = 0;
  const Seconds start = Now();
  for (int pull = 0; pull < kPulls; ++pull) {
    queue.Expire(0.5);
    given += queue.LeaseAgain(1 + pull % kWorkers, 8, {RequestKind::kRollout}, 0.5, 1000, 1).size();
  }
  return given == 0 ? kPulls / (Now() - start).cpu : 0;
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  const int requests = CountArgument(argc, argv, 100'000);
  fmt::print("\nqueue of {} requests, {} workers, CPU time of one core\n", requests, kWorkers);
  fmt::print("{:<34}{:>12}{:>14}{:>12}\n", "", "pulls/s", "requests/s", "commits/s");
  for (const int batch : {1, 8}) {
    for (const std::uint32_t commits : {0U, 10U}) {
      Counts counts;
      const double seconds = LeastCpu(Measure(3, [&] { counts = RunPhase(requests, batch, commits); }));
      fmt::print("{:<34}{:>12.0f}{:>14.0f}{:>12.0f}\n", fmt::format("batches of {}, {} commits", batch, commits),
                 counts.pulls / seconds, requests / seconds, counts.commits / seconds);
    }
  }
  fmt::print("{:<34}{:>12.0f}\n", "idle, all leased to others", IdlePullsPerSecond(requests));
  return 0;
}
