// `spotlight sample`: images of prompts from a model and perhaps an adapter, by the sampler that evaluations use.
//
// Prompts: those of --prompt, or of prompts/eval. ODE with eval/steps, seeds 0 .. eval/seeds - 1, size and guidance
// from [sampler]; weights in model/precision, the modulation in a table. An image depends on weights, prompt, seed and
// these settings alone: not on batch, ranks or degree, and it is the one that an evaluation of a run makes. Ranks in
// groups of ranks/explorer_sp share each pass; the groups share out the images. Writes <prompt>_<seed>.png with all
// settings in its text chunks, and grid.png.
#pragma once

#include "comm/world.hpp"
#include "config/command_line.hpp"

namespace spotlight {

// Returns the exit code of this rank. Mistakes are UserErrors before any work.
int RunSample(const CommandLine& command, World& world);

}  // namespace spotlight
