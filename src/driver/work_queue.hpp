// The work of a run: what is to be denoised, who has it, how far it has got, and what came back.
//
// The coordinator's queue of requests (schedule/request_queue.hpp) with the tensor store, from which an interrupted
// request goes on, and with what has been measured of the workers' speed: by it batches, leases and the degree of
// explorers' groups are sized. A lease is as long as its worker may be silent: one that commits at every step is missed
// soon, one that never does (a trainer, or exploration whose steps cannot be gone on from) after three batches. Times
// are seconds of a monotonic clock, given as an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "comm/messages.hpp"
#include "config/config.hpp"
#include "driver/roster.hpp"
#include "io/tensor_store.hpp"
#include "schedule/batch_size.hpp"
#include "schedule/request_queue.hpp"

namespace spotlight {

class WorkQueue {
 public:
  // store: where commits go; null: there are none. heads: of the model, which degrees divide. alone: one process does
  // everything.
  WorkQueue(const Config& config, TensorStore* store, int heads, bool alone)
      : config_(config), store_(store), heads_(heads), alone_(alone) {}

  // Forgets the requests of the iterations before; a late result of theirs is refused from now on.
  void BeginIteration(std::uint32_t iteration);
  // Queues requests; ids are given here. What the store has of them from before a restart is not done again.
  void Add(std::vector<Request> requests, const Roster& roster);
  // Nothing of this kind is queued or leased.
  bool Done(RequestKind kind) const { return queue_.Done(kind); }
  bool AllDone() const {
    return Done(RequestKind::kEvaluate) && Done(RequestKind::kRollout) && Done(RequestKind::kExplore);
  }
  std::size_t CountDone(RequestKind kind) const { return samples_.contains(kind) ? samples_.at(kind).size() : 0; }
  // Drops what is queued and refuses what is still being computed.
  int Cancel(RequestKind kind) { return queue_.Cancel(kind); }
  // Workers that compute requests of a kind; and the newest id that was given.
  std::vector<std::uint32_t> Working(RequestKind kind) const;
  std::uint64_t last_id() const { return next_id_ - 1; }
  // Finished samples of a kind since the last call, in the order of their request ids.
  std::vector<Sample> Take(RequestKind kind);

  // A batch for the worker that pulls, if there is one. leaders: all workers that pull; takes: which of them may do
  // requests of a kind.
  std::optional<Work> Lease(const Pull& pull, const std::vector<int>& leaders,
                            const std::function<bool(RequestKind, int)>& takes, double now);
  // Keeps what counts of a worker's results: nothing that was cut, fenced or is done already, or has another shape.
  // Returns the denoising steps of what it kept.
  double Accept(Push push, double now);
  // Keeps how far a batch has got, where its lease counts and the disk keeps up; a sign of life in any case.
  void Accept(CommitStates commit, double now);
  // What a worker has in work is queued again. Lose: and its speed is unknown; the number of its requests.
  void Release(std::uint32_t rank);
  std::size_t Lose(std::uint32_t rank);
  // Ends leases that ran out, and says so; tells the store's new problems. Looks twice a second at most.
  void Expire(double now);
  // Leaders that have given no sign since a lease of theirs ran out.
  const std::set<std::uint32_t>& silent() const { return silent_; }

  // Ranks that are to share a pass; 0: no opinion yet.
  int degree() const { return degree_; }

 private:
  struct Batch {
    double since = 0;     // leased
    Request first;        // by its id and epoch the batch is known
    double heard = 0;     // when there was the last sign of it
    double silence = 0;   // the longest time without one
    bool loaded = false;  // it had new weights to load
    std::size_t requests = 0;
    int degree = 1;  // ranks that share the pass
    bool spot = true;
    RequestKind kind = RequestKind::kRollout;
  };

  std::uint32_t StepsOf(RequestKind kind) const;
  void ChooseDegree(const Roster& roster);
  Work WithStates(std::vector<Request> requests);
  // The batch of a rank of which `first` is the first request, after a sign of it; null: it has no such batch.
  Batch* Hear(std::uint32_t rank, const Request& first, double now);
  void Measure(const Push& push, double now);

  const Config& config_;
  TensorStore* store_;
  int heads_;
  bool alone_;
  RequestQueue queue_;
  WorkerSpeeds speeds_;
  std::uint64_t next_id_ = 1;
  std::map<RequestKind, std::map<std::uint64_t, Sample>> samples_;
  std::map<std::uint32_t, Batch> batches_;                               // in work, by leader
  std::map<std::uint32_t, int> degrees_;                                 // of the last batch, by leader
  std::map<RequestKind, std::uint64_t> versions_;                        // of the weights, by what was added last
  std::map<std::pair<std::uint32_t, bool>, std::uint64_t> had_version_;  // by leader, trained or averaged weights
  std::set<std::uint32_t> silent_;
  std::map<int, double> degree_seconds_;  // a request by all that share it, by degree
  int degree_ = 0;
  double last_expiry_ = 0;
  std::size_t problems_told_ = 0;  // of the store's
};

}  // namespace spotlight
