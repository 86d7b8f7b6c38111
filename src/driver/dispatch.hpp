// The coordinator's side of the control plane: answers every worker's pull, push and fetch.
//
// Holds what is handed out and collected within an iteration: the request queue, the samples that came
// back, the trainers' tasks, the published weights and the cost ledger. Decides nothing about learning.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/channel.hpp"
#include "comm/messages.hpp"
#include "comm/weight_pieces.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "model/model_weights.hpp"
#include "plan/ledger.hpp"
#include "schedule/request_queue.hpp"

namespace spotlight {

// The run cannot go on: a worker reported a failure, or training diverged. The last checkpoint is good.
class RunFailed : public std::runtime_error {
 public:
  RunFailed(const std::string& text, int exit_code) : std::runtime_error(text), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

class Dispatch {
 public:
  // roles: of each rank that calls (of the one process: rank 0, kAll); the others of a sequence-parallel group do not.
  // embeddings: answers what workers ask about prompts. weights: number of trained parameters.
  using Embeddings = std::function<Prompts(const FetchPrompts&)>;
  Dispatch(const Config& config, const std::map<std::uint32_t, Role>& roles, std::uint64_t run_id, Server& server,
           Embeddings embeddings, Index weights);

  // Ranks that only share the passes of those that call: each greets once with a pull and stays connected, so that its
  // loss is noticed and named.
  void Watch(std::map<std::uint32_t, Role> followers) { followers_ = std::move(followers); }

  // Forgets the last iteration's requests; a late result of theirs is refused from now on.
  void BeginIteration();
  // Queues requests; ids are given here.
  void Add(std::vector<Request> requests);
  bool Done(RequestKind kind) const { return queue_.Done(kind); }
  std::size_t CountDone(RequestKind kind) const { return queue_.Count(RequestState::kDone, kind); }
  // Drops what is queued and refuses what is still being computed.
  int Cancel(RequestKind kind) { return queue_.Cancel(kind); }
  // Finished samples of a kind since the last call, in the order of their request ids.
  std::vector<Sample> Take(RequestKind kind);

  // Gives every trainer the iteration's samples; TakeTrained has the result when all are done.
  void StartTraining(Train train);
  bool trained() const { return trained_.has_value(); }
  Trained TakeTrained() { return std::exchange(trained_, std::nullopt).value(); }
  // Gives the trainers the task to save their state into `path`.
  void StartSave(const std::string& path, std::uint64_t step);
  bool saved() const { return savers_left_ == 0; }

  // Weights that workers may fetch from now on; keeps those of the last two versions.
  void Publish(const WeightKey& key, std::vector<float> values);
  const std::vector<float>& PublishedWeights(const WeightKey& key) const;

  // Answers workers until `condition` holds. Throws RunFailed, or PeerLost if
  // the connection of one has ended: it is dead, stopped or cut off.
  // `idle` is called now and then, for progress and signals.
  void ServeUntil(const std::function<bool()>& condition, const std::function<void()>& idle);

  // Tells every worker to leave and waits until each has heard it or is gone, for kLongestTurn at most.
  void Finish();

  CostLedger& ledger() { return ledger_; }
  static constexpr double kConnectSeconds = 60;  // a worker that has not called by then is lost
  static constexpr double kLongestTurn = 600;    // seconds that a worker may compute before it hears Finish

 private:
  struct Published {
    WeightKey key;
    std::vector<float> values;
    std::uint64_t checksum = 0;
  };
  struct WorkerState {
    Role role = Role::kExplorer;
    double last_pull = 0;
    bool called = false;
    bool gone = false;          // has heard Finish, or its connection has ended
    std::deque<Message> tasks;  // trainers: Train, Save
  };

  bool ServeOne();
  void CheckWorkers();
  PeerLost Lost(std::uint32_t rank, Role role, const std::string& how) const;
  Bytes Answer(const Bytes& bytes);
  Message AnswerPull(const Pull& pull);
  void AcceptPush(const Push& push);
  void AcceptTrained(Trained trained);
  const Published& FindPublished(const WeightKey& key) const;
  int RanksOf(Role role) const;  // that one caller speaks for
  std::size_t LeaseSize(const WorkerState& worker, RequestKind kind) const;
  bool Explores(const WorkerState& worker) const;

  const Config& config_;
  std::uint64_t run_id_;
  Server& server_;
  std::map<std::uint32_t, WorkerState> workers_;
  std::map<std::uint32_t, Role> followers_;
  int explorers_ = 0;
  RequestQueue queue_;
  std::uint64_t next_id_ = 1;
  std::map<RequestKind, std::map<std::uint64_t, Sample>> samples_;
  std::optional<Trained> trained_;
  int trainers_left_ = 0;  // that have not finished Train
  double start_;
  int savers_left_ = 0;  // trainers that have not finished Save
  bool finishing_ = false;
  std::list<Published> published_;
  PushedWeights pushed_;
  Embeddings embeddings_;
  std::optional<RunFailed> failure_;
  double failed_at_ = 0;
  CostLedger ledger_;
};

}  // namespace spotlight
