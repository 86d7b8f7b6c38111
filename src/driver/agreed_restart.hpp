// Which checkpoint all ranks start from: rank 0 looks, the others take what it found. The views of a shared file system
// may differ, and a run that is still going on may write another one meanwhile.
#pragma once

#include <optional>

#include "comm/world.hpp"
#include "config/command_line.hpp"
#include "record/run_directory.hpp"

namespace spotlight {

// Collective if the command line asks for a restart, else nothing. Errors as FindRestart's, on rank 0; FileError on a
// rank that does not see the checkpoint within half a minute.
std::optional<Restart> AgreeOnRestart(const CommandLine& command, World& world);

}  // namespace spotlight
