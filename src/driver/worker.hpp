// A worker: what trainers, explorers and the one process of a run without mpirun do, one turn at a time.
//
//   pull -> Work:  denoise -> decode -> score -> push          (all workers)
//        -> Train: GRPO on the iteration's samples -> trained  (trainers)
//        -> Save:  the trainer's state into a checkpoint
//        -> Wait, Finish
#pragma once

#include <memory>

#include "base/sequence_group.hpp"
#include "comm/channel.hpp"
#include "comm/trainer_group.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "driver/resources.hpp"
#include "model/model_weights.hpp"
#include "plan/ledger.hpp"
#include "rollout/sampler.hpp"
#include "train/trainer.hpp"

namespace spotlight {

class Worker {
 public:
  // `resources` must outlive the worker. Trainers start from `state` (a checkpoint's or the initial one). group: the
  // ranks that run each pass with this one; null: it runs alone. In a group every rank makes the same turns, through a
  // GroupClient; decoding and judging are the leader's.
  Worker(const Config& config, const Resources& resources, World& world, std::uint64_t run_id,
         const OptimizerState& state, SequenceGroup* group = nullptr);

  // One pull and what it asks for. False: the coordinator said Finish.
  bool Turn(Client& coordinator);

  // Tells the coordinator who this rank is that only shares a leader's passes, over a connection of its own.
  void Greet(Client& coordinator) { static_cast<void>(Pulled(coordinator)); }

  // Turns until Finish. A leader's failure is reported to the coordinator, which tells the user, and to the others of
  // the group; returns its exit code. Throws CoordinatorLost, and what broke a pass that others share.
  int Run(Client& coordinator);

 private:
  Message Call(Client& coordinator, const Message& message);
  Message Pulled(Client& coordinator);
  void Denoise(Client& coordinator, const std::vector<Request>& requests);
  void TrainIteration(Client& coordinator, const Train& train);
  void FetchMissingWeights(Client& coordinator, const WeightKey& key);
  // Conditions of these prompts, and the negative one, are here afterwards.
  void FetchMissingPrompts(Client& coordinator, TextList list, const std::vector<Request>& requests);
  bool leads() const { return group_ == nullptr || group_->index() == 0; }

  const Config& config_;
  const Resources& resources_;
  World& world_;
  std::uint64_t run_id_;
  SequenceGroup* group_;
  ModelWeights weights_;
  Sampler sampler_;
  ConditionedPrompts train_, eval_;
  bool negative_known_ = false;
  std::unique_ptr<TrainerGroup> trainer_group_;  // null: not a trainer
  std::unique_ptr<Trainer> trainer_;
  std::vector<double> busy_seconds_ = std::vector<double>(kUses, 0.0);
};

// Weights that a request is to be denoised with.
inline WeightKey RequestWeights(const Request& request, bool ema_kept) {
  return {request.weight_version, ema_kept && request.kind == RequestKind::kEvaluate};
}

// A trainer's part of a checkpoint folder.
void SaveOptimizerState(const OptimizerState& state, const std::string& folder);
OptimizerState LoadOptimizerState(const std::string& folder);

}  // namespace spotlight
