// Requests from outside to stop or to write a checkpoint, honoured at iteration borders.
//
//   SIGINT, SIGTERM, SIGUSR1   finish the iteration, write a checkpoint, exit 75
//   SIGUSR2, or a file `checkpoint_now` in the run directory   write a checkpoint and go on
#pragma once

#include <string>

namespace spotlight {

// Handlers only set flags. A second SIGINT ends the process at once.
void InstallSignalHandlers();
// The name of the stop signal that came, or "" if none did. Of several SIGTERM is told, then SIGINT: to a spot rank
// SIGTERM alone is a notice, and scripts/mpirun.sh may send SIGUSR1 on top.
std::string StopSignal();
// SIGUSR2 came, or the file is there; forgets the one and removes the other.
bool TakeCheckpointRequest(const std::string& run_dir);

}  // namespace spotlight
