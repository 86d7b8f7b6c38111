// What several settings must satisfy together; each failure is a UserError that shows the arithmetic.
//
// Ranges of single keys are tested when they are read (fields.hpp).
#pragma once

#include "config/config.hpp"

namespace spotlight {

// Before the main job: the required paths are given, the stochastic window lies within the steps, the groups fill
// the updates, the schedule and the exploration are possible.
void CheckConfig(const Config& config);

// Before `spotlight sample`: a model and prompts are given (prompts_given: on the command line).
void CheckSample(const Config& config, bool prompts_given);

// Before `spotlight pretrain`: the shape of the new network is possible.
void CheckPretrain(const Config& config);

// Before roles are dealt out in a world of `ranks` processes: one process takes all roles; more need one coordinator
// and ranks/trainers trainers, and what is left are spot ranks.
void CheckRanks(const Config& config, int ranks);

}  // namespace spotlight
