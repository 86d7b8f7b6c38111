// What a run will do and need, before it does anything: batch arithmetic, memory, time, cost.
#pragma once

#include <string>

#include "comm/world.hpp"
#include "config/command_line.hpp"
#include "config/config.hpp"

namespace spotlight {

// Prints the plan. Reads all files that are there. With weights, one forward and one training batch are measured on
// this machine for the time estimate, if they take less than about a minute.
int DryRun(const CommandLine& command, const World& world);

}  // namespace spotlight
