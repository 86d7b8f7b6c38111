// The coordinator's side of the control plane: answers every worker's pull, push and fetch.
//
// Holds what is handed out and collected within an iteration: the work (driver/work_queue.hpp), the trainers' tasks,
// the published weights, who takes part (driver/roster.hpp) and the cost ledger. Decides nothing about learning. A lost
// spot rank gives its requests back, and others go on with them from their last commit; a lost trainer ends the run.
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
#include "driver/roster.hpp"
#include "driver/work_queue.hpp"
#include "io/tensor_store.hpp"
#include "model/model_weights.hpp"
#include "plan/ledger.hpp"

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
  // trainers: the ranks that must come, and whether each leads its group (only leaders call); of the one process: rank
  // 0, kAll. store: where commits go; null: there are none. embeddings: answers what workers ask about prompts.
  // weights: number of trained parameters. welcome: answers a spot job that wants to join, but for its ranks' numbers.
  struct Parts {
    std::map<std::uint32_t, bool> trainers;
    Role role = Role::kTrainer;  // of `trainers`: kTrainer or kAll
    TensorStore* store = nullptr;
    std::function<Prompts(const FetchPrompts&)> embeddings;
    std::function<Welcome()> welcome;
    std::function<void()> tick;  // called between two answers
    Index weights = 0;
    int heads = 1;  // of the model: sequence-parallel degrees divide it
    // Of every rank that may take part: how it computes, and Resources::contents.
    std::uint64_t fingerprint = 0;
    std::map<std::string, std::string> contents;
  };
  Dispatch(const Config& config, std::uint64_t run_id, Server& server, Parts parts);

  // What is to be denoised, see WorkQueue.
  void BeginIteration(std::uint32_t iteration) {
    times_.clear();  // of an iteration in which nobody took them
    work_.BeginIteration(iteration);
  }
  void Add(std::vector<Request> requests) { work_.Add(std::move(requests), roster_); }
  bool Done(RequestKind kind) const { return work_.Done(kind); }
  std::size_t CountDone(RequestKind kind) const { return work_.CountDone(kind); }
  // Nothing more of this kind is wanted: who computes it is told to stop.
  void Cancel(RequestKind kind);
  std::vector<Sample> Take(RequestKind kind) { return work_.Take(kind); }
  // Of the batches of a kind that spot ranks finished in this iteration, since the last call.
  std::vector<BatchTimes> TakeTimes(RequestKind kind) { return std::exchange(times_[kind], {}); }

  // Tells every trainer to train on the iteration's samples; TakeTrained has the result when all are done.
  void StartTraining(std::uint32_t iteration, std::vector<TrainSample> samples);
  bool trained() const { return trained_.has_value(); }
  Trained TakeTrained() { return std::exchange(trained_, std::nullopt).value(); }
  // Gives the trainers the task to save their state into `path`.
  void StartSave(const std::string& path, std::uint64_t step);
  bool saved() const { return savers_left_ == 0; }

  // Weights that workers may fetch from now on; keeps those of the last two versions.
  void Publish(const WeightKey& key, std::vector<float> values);
  const std::vector<float>& PublishedWeights(const WeightKey& key);

  // Answers workers until `condition` holds. Throws RunFailed, or PeerLost if a trainer's connection has ended: it is
  // dead, stopped or cut off.
  // `idle` is called now and then, for progress and signals.
  void ServeUntil(const std::function<bool()>& condition, const std::function<void()>& idle);

  // Tells every worker to leave and waits until each has heard it or is gone, for kLongestTurn at most.
  void Finish();

  CostLedger& ledger() { return ledger_; }
  const Roster& roster() const { return roster_; }
  Roster& roster() { return roster_; }
  static constexpr double kConnectSeconds = 60;  // a trainer that has not called by then is lost
  static constexpr double kLongestTurn = 600;    // seconds that a worker may compute before it hears Finish

 private:
  struct Published {
    WeightKey key;
    std::vector<float> values;
    WeightPieces pieces;
    HolderList holders;
  };
  struct TrainerState {
    bool leads = false;
    bool arrived = false;
    bool gone = false;          // has heard Finish, or its connection has ended
    std::deque<Message> tasks;  // Train, Save
  };

  bool ServeOne();
  void CheckWorkers();
  void Lose(std::uint32_t rank);
  PeerLost Lost(std::uint32_t rank, const std::string& how) const;
  Bytes Answer(const Bytes& bytes);
  Message AnswerHello(const Hello& hello);
  std::string Unfit(const Hello& hello) const;
  Message AnswerPull(const Pull& pull);
  Message AnswerJoin(const Join& join);
  void AcceptGiveBack(const GiveBack& message);
  void AcceptTrained(Trained trained);
  Published* FindPublished(const WeightKey& key);
  Message AnswerFind(const FindWeights& find);
  Message AnswerFetch(const FetchWeights& fetch);
  Message AnswerFetch(const FetchSamples& fetch) const;
  bool Takes(RequestKind kind, std::uint32_t rank) const;

  const Config& config_;
  std::uint64_t run_id_;
  Server& server_;
  Parts parts_;
  std::map<std::uint32_t, TrainerState> trainers_;
  WorkQueue work_;
  std::map<RequestKind, std::vector<BatchTimes>> times_;
  std::vector<TrainSample> samples_;  // that are being trained on
  std::optional<Trained> trained_;
  std::map<std::string, double> trained_metrics_;  // reported so far
  int trainers_left_ = 0;                          // that have not finished Train
  double start_;
  int savers_left_ = 0;  // trainers that have not finished Save
  bool finishing_ = false;
  std::list<Published> published_;
  PushedWeights pushed_;
  std::optional<RunFailed> failure_;
  double failed_at_ = 0;
  CostLedger ledger_;
  Roster roster_;
};

}  // namespace spotlight
