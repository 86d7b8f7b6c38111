// What a run will do and need, before it does anything: batch arithmetic, memory, time, cost.
#pragma once

#include <string>

#include "comm/world.hpp"
#include "config/command_line.hpp"
#include "config/config.hpp"
#include "model/dit.hpp"

namespace spotlight {

// Threads of this rank: device/threads, or the node's cores shared by its ranks.
int ThreadsPerRank(const Config& config, const World& world);

// Bytes of one rank.
struct MemoryEstimate {
  double weights = 0;      // base, and the versions of the trained ones
  double optimizer = 0;    // trainer only: weights, gradient, two moments, average, and their copies in a checkpoint
  double activations = 0;  // of the largest batch that the rank works on
  double control = 0;      // messages; coordinator: published weights, the iteration's samples
  double program = 0;      // code and libraries, measured
  double total() const { return weights + optimizer + activations + control + program; }
};

MemoryEstimate EstimateMemory(const Config& config, const DitLayout& layout, Index text_tokens, Role role);

// Prints the plan. Reads all files, measures one forward and one training batch on this machine for the time estimate.
int DryRun(const CommandLine& command, const World& world);

}  // namespace spotlight
