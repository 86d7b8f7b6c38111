// A worker: what trainers, explorers and the one process of a run without mpirun do, one turn at a time.
//
//   pull -> Work:  denoise -> decode -> score -> push          (all workers)
//        -> Train: GRPO on the iteration's samples -> trained  (trainers)
//        -> Save:  the trainer's state into a checkpoint
//        -> Wait, Finish
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/node_memory.hpp"
#include "base/sequence_group.hpp"
#include "comm/channel.hpp"
#include "comm/trainer_group.hpp"
#include "comm/weight_exchange.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "driver/resources.hpp"
#include "model/model_weights.hpp"
#include "plan/ledger.hpp"
#include "rollout/sampler.hpp"
#include "train/trainer.hpp"

namespace spotlight {

// How a worker talks to the coordinator.
struct Lines {
  Client& shared;  // all members of the group make the same calls and get the same replies; the leader's are sent
  Client& own;     // this rank's alone
};

class Worker {
 public:
  // Called at each border between two denoising steps; `commit` sends how far the batch has got. drop: this rank has
  // heard that nobody needs the batch any more; returns whether any of the group has. What it throws ends the batch.
  using AtBorder = std::function<bool(bool drop, const std::function<void()>& commit)>;

  // `resources` and `node` must outlive the worker. rank: its number in the run. Trainers start from `state` (a
  // checkpoint's or the initial one). group: the ranks that run each pass with this one; null: it runs alone. In a
  // group every rank makes the same turns; decoding and judging are the leader's. A worker with `at_border` commits.
  Worker(const Config& config, const Resources& resources, World& world, std::uint32_t rank, std::uint64_t run_id,
         NodeMemory* node, const OptimizerState& state, SequenceGroup* group = nullptr, AtBorder at_border = {});

  // One pull and what it asks for. members: ranks of the run that share the passes, the leader first. False: the
  // coordinator said Finish.
  bool Turn(const Lines& lines, const std::vector<std::uint32_t>& members);

  // Turns until Finish, of a group that does not change. A leader's failure is reported to the coordinator, which tells
  // the user, and to the others of the group; returns its exit code. Throws CoordinatorLost, and what broke a pass that
  // others share.
  int Run(const Lines& lines, const std::vector<std::uint32_t>& members);
  // What Run does with what a turn threw, inside its catch block.
  int Report(const Lines& lines, const std::exception& error);

  // Whether the weights that are here, perhaps a neighbour's, are those that were written. Reads all of them.
  bool Intact() const { return weights_.Intact(); }

  // Ranks that are to share a pass, by the coordinator's last word; 0: none yet.
  int wanted_degree() const { return wanted_degree_; }

  // Time that the caller itself spent, which the next pull reports.
  void AddBusy(Use use, double seconds) { busy_seconds_[static_cast<std::size_t>(use)] += seconds; }

 private:
  class Border;

  Message Call(Client& coordinator, const Message& message);
  void Denoise(const Lines& lines, const Work& work);
  std::vector<TrainSample> FetchSamples(Client& coordinator, std::uint64_t count);
  void TrainIteration(const Lines& lines, const Train& train);
  void FetchMissingWeights(Client& own, const WeightKey& key);
  // Conditions of these prompts, and the negative one, are here afterwards. By this rank's own line: others of its
  // group may have come from groups that worked on other prompts.
  void FetchMissingPrompts(Client& own, TextList list, const std::vector<Request>& requests);
  bool leads() const { return group_ == nullptr || group_->index() == 0; }

  const Config& config_;
  const Resources& resources_;
  World& world_;
  std::uint32_t rank_;
  std::uint64_t run_id_;
  SequenceGroup* group_;
  AtBorder at_border_;
  ModelWeights weights_;
  std::optional<WeightExchange> exchange_;  // serves what weights_ has; explorers only
  Sampler sampler_;
  ConditionedPrompts train_, eval_;
  bool negative_known_ = false;
  std::unique_ptr<TrainerGroup> trainer_group_;  // null: not a trainer
  std::unique_ptr<Trainer> trainer_;
  std::vector<double> busy_seconds_ = std::vector<double>(kUses, 0.0);
  int wanted_degree_ = 0;
  std::map<RequestKind, std::uint64_t> dropped_;  // requests up to this id are not wanted
  std::uint64_t sample_steps_ = 0;                // denoised since the last pull
  double step_seconds_ = 0, commit_seconds_ = 0;  // of the last ones
};

// Weights that a request is to be denoised with.
inline WeightKey RequestWeights(const Request& request, bool ema_kept) {
  return {request.weight_version, ema_kept && request.kind == RequestKind::kEvaluate};
}

// A trainer's part of a checkpoint folder.
inline constexpr char kTrainerStateFile[] = "trainer.h5";  // in the checkpoint's folder
void SaveOptimizerState(const OptimizerState& state, const std::string& folder);
OptimizerState LoadOptimizerState(const std::string& folder);

}  // namespace spotlight
