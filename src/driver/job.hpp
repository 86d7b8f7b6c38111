// One main job from the command line to the exit code: reads and checks everything, deals out the
// roles, restores a checkpoint, runs the coordinator or a worker.
#pragma once

#include <string>

#include "comm/world.hpp"
#include "config/command_line.hpp"

namespace spotlight {

// Returns the exit code of this rank; mistakes are UserErrors (the same on all ranks or on one).
int RunJob(const CommandLine& command, World& world, const std::string& command_text);

// --check: reads all that the run would read and says what it found.
int CheckJob(const CommandLine& command, const World& world);

}  // namespace spotlight
