// Exploration as the coordinator sees it: what is explored beside training, what is kept of it, and what is learnt from
// how that went. Decides; asks nobody and waits for nobody.
//
//   iteration i     Plan      which seeds of iteration i + 1, for how many real forwards (plan/exploration_planner.hpp)
//                   Choose    of what was scored in time: the seeds that are rolled out (plan/selection.hpp)
//   iteration i+1   Credit    what the rollouts' rewards say about that choice
//                   JudgeStaleness   whether explored rewards still tell anything, while trainers train
//
// With explore/budget = fixed all of explore/seeds is explored; with a recording, what that run explored.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/request.hpp"
#include "config/config.hpp"
#include "plan/advantage.hpp"
#include "plan/exploration_planner.hpp"
#include "plan/iteration_plan.hpp"
#include "plan/staleness.hpp"
#include "record/recording.hpp"
#include "record/run_state.hpp"

namespace spotlight {

class Exploration {
 public:
  using Values = std::map<std::string, double>;

  // recording: what is replayed; null: nothing. Goes on from what `state` has of a checkpoint.
  Exploration(const Config& config, const Recording* recording, const RunState& state);

  // The requests for `next`, beside training that begins now with weights `version`, on groups of these sizes. None:
  // there is no time, or nobody, for any. UserError: the recording is of another run.
  std::vector<Request> Plan(const IterationPlan& next, const std::vector<int>& slots, std::uint64_t version);

  // What was measured beside a training phase.
  struct Measured {
    double train_seconds = 0, push_seconds = 0;
    std::vector<BatchTimes> explored, others;  // batches of spot ranks; others: since the iteration began
    std::size_t slots = 0;                     // groups that are there now
    bool departed = false;                     // an explorer went, whoever came in its place
    std::size_t scored = 0;                    // seeds, in time
  };
  void Observe(const Measured& measured);

  // Gives `next` its seeds. `explored`: all that were scored in time, in the order of their requests.
  void Choose(std::vector<Sample> explored, IterationPlan& next, Values& values);

  // `plan` was rolled out: rewards [prompts x images], and what they are to each other.
  void Credit(const IterationPlan& plan, std::span<const double> rewards, const Advantages& advantages);

  // What the seeds kept by chance say so far; warns, once, when that is bad. May take milliseconds.
  void JudgeStaleness(std::uint32_t iteration, Values& values);

  // Into a checkpoint, from which the constructor goes on.
  void Save(RunState& state) const;

  // Of Plan and Choose since the last call, for the record of iteration `step`.
  std::vector<Sample> TakeExplored() { return std::exchange(explored_, {}); }
  std::vector<DecisionRow> TakeDecisions(std::uint32_t step);

 private:
  std::vector<Request> Recorded(const IterationPlan& next, std::uint64_t version);

  const Config& config_;
  const Recording* recording_;
  ExplorationPlanner planner_;
  StalenessEstimate staleness_;
  Decision decision_;
  ArmOutcome outcome_;  // of the arm that was played last, until it is credited
  std::size_t slots_ = 0;
  std::vector<Sample> explored_;
  bool warned_ = false;
};

}  // namespace spotlight
