// Everything that a run writes for people: run.h5, history.jsonl, spotlight.log, sample images, and the status line.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "io/history_log.hpp"
#include "io/run_file.hpp"
#include "plan/advantage.hpp"
#include "plan/iteration_plan.hpp"
#include "reward/evaluation.hpp"

namespace spotlight {

// What the record says about the run's inputs; must outlive it.
struct RecordedInputs {
  const Config& config;
  const std::vector<Prompt>& train_prompts;
  const std::vector<Prompt>& eval_prompts;
  const std::vector<std::string>& reward_terms;
};

class RunRecord {
 public:
  RunRecord(std::string directory, const RecordedInputs& inputs);

  // A new run: makes the files. `attributes`: provenance beside io/provenance.hpp's.
  void Create(const std::map<std::string, std::string>& attributes);
  // A resumed run: drops what was recorded after the checkpoint. `step`: the next iteration.
  void Resume(int step, const std::map<std::string, std::string>& attributes);

  // The history row of one iteration, and the tables' rows: a rollout each, samples [prompts * images] group by group;
  // the seeds that were explored meanwhile for the `next` iteration; and what the planner thought of each arm.
  void AddIteration(const IterationPlan& plan, const std::map<std::string, double>& values,
                    const std::vector<Sample>& samples, const Advantages& advantages,
                    const std::vector<Sample>& explored, const IterationPlan& next, std::vector<DecisionRow> decisions);
  // The last history row, of the final evaluation.
  void AddFinal(int step, const std::map<std::string, double>& values);
  // samples/step_000120/*.png, grid.png and /samples of run.h5.
  void AddPictures(int step, const Evaluation& evaluation);

  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  RecordedInputs inputs_;
  RunFile run_file_;
  std::unique_ptr<HistoryLog> history_;
};

}  // namespace spotlight
