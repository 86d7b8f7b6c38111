// `spotlight study ranks -r RUN`: how well seeds keep their order under older weights and with fewer computed steps, on
// the checkpoints of a run.
//
// Of study/prompts training prompts study/seeds seeds each are denoised and scored in one process, with the same noise
// every time: with the newest checkpoint's weights and all steps (the reference), with fewer computed steps (those of
// the planner's arms), with weights 1, 2, 5 and 10 versions older as far as there are checkpoints, and with both, which
// is what exploration does; and with other noise, for the floor. Steps are cached as explore/cache = steps does. Prints
// a table and replaces RUN/study_ranks.h5 (study_file.hpp). Changes nothing else of the run.
#pragma once

#include "comm/world.hpp"
#include "config/command_line.hpp"

namespace spotlight {

// Returns the exit code. UserError before any work; FileError for a damaged checkpoint.
int RunStudy(const CommandLine& command, const World& world);

}  // namespace spotlight
