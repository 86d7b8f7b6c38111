// Where the SDE window of an iteration begins: the steps that are stochastic and trained (Flow-GRPO-Fast, MixGRPO).
#pragma once

#include <cstdint>

namespace spotlight {

// Uniform in [first, last], a pure function of the arguments; shared by all groups of the iteration.
int DrawWindowStart(std::uint64_t run_seed, std::uint32_t iteration, int first, int last);

}  // namespace spotlight
