// The coordinator: runs the iterations of a run. RunIteration reads top to bottom like the table in
// docs/design.md: rollout, select, train (exploration overlapping), publish, record.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "driver/dispatch.hpp"
#include "driver/exploration.hpp"
#include "driver/resources.hpp"
#include "plan/iteration_plan.hpp"
#include "plan/prompt_sampler.hpp"
#include "record/progress.hpp"
#include "record/run_record.hpp"
#include "record/run_state.hpp"
#include "reward/evaluation.hpp"

namespace spotlight {

class Coordinator {
 public:
  // `state`: of a checkpoint, or a new run's. Weights of version state.next_iteration must be published.
  // recording: the run whose exploration is replayed; null: none.
  Coordinator(const Config& config, const Resources& resources, Dispatch& dispatch, RunRecord& record, RunState state,
              int trainers, const Recording* recording);

  // Iterations until the last, the time limit or a stop signal, and a checkpoint; then the final evaluation, which
  // these may end, too, and the export. Returns kExitFinished or kExitStopped. Throws RunFailed, FileError, PeerLost.
  int Run();

 private:
  using Values = std::map<std::string, double>;

  void RunIteration();
  void RolloutPhase(bool evaluate, std::vector<Sample>& rollouts, Evaluation& evaluation);
  Advantages ScoreRollouts(const std::vector<Sample>& rollouts, Values& values);
  Trained TrainPhase(const std::vector<Sample>& rollouts, const Advantages& advantages, IterationPlan& next,
                     Values& values);
  void Publish(Trained& trained);
  void Record(const std::vector<Sample>& rollouts, const Advantages& advantages, const IterationPlan& next,
              Values values);
  bool FinalEvaluation();
  void RecordEvaluation(const Evaluation& evaluation, Values& values);
  void SaveCheckpoint();
  bool EvaluationDue() const;
  bool PicturesDue() const;
  WeightKey EvaluationWeights() const { return {state_.next_iteration, config_.train.ema_decay > 0}; }
  std::string StopReason(double needed_seconds) const;
  void TellStopped(const std::string& where, const std::string& reason);
  double Elapsed() const;

  const Config& config_;
  const Resources& resources_;
  Dispatch& dispatch_;
  RunRecord& record_;
  RunState state_;
  PromptSampler prompt_sampler_;
  Exploration exploration_;
  Progress progress_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double elapsed_before_;
  int trainers_;
  int first_iteration_;  // of this part of the run
  int last_checkpoint_ = -1;
  int last_pictures_ = -1;
  double last_record_seconds_ = 0, longest_record_seconds_ = 0;  // files and checkpoint
  double longest_iteration_ = 0;
  double step_seconds_ = 0, tail_seconds_ = 0;  // of all iterations; that they waited for exploration
};

}  // namespace spotlight
