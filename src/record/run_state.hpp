// What the coordinator must remember between iterations: its part of a checkpoint. With the trainer's
// part (driver/worker.hpp) a run continues with the bits of one that never stopped.
#pragma once

#include <map>
#include <string>

#include "plan/iteration_plan.hpp"
#include "plan/ledger.hpp"

namespace spotlight {

inline constexpr char kRunStateFile[] = "coordinator.h5";  // in the checkpoint's folder

struct RunState {
  std::uint32_t next_iteration = 0;
  IterationPlan plan;                           // of next_iteration, seeds chosen
  std::string input;                            // the resolved input as text
  std::map<std::string, std::string> contents;  // Resources::contents
  std::string token;                            // drawn at the start: the run's own name for what lies outside of it
  double ledger_seconds[kPools][kUses] = {};
  double useful_steps = 0, all_steps = 0;                             // of the ledger
  double elapsed_seconds = 0;                                         // wall time of all parts of the run
  double first_strict = 0, first_strict_error = 0, first_reward = 0;  // evaluation of version 0
  std::vector<double> planner;                                        // its state, as it gives it
  std::vector<double> staleness;                                      // likewise, of the estimate from control seeds
  int restarts = 0;
};

void SaveRunState(const RunState& state, const std::string& folder);
RunState LoadRunState(const std::string& folder);  // FileError if damaged or of another version

}  // namespace spotlight
