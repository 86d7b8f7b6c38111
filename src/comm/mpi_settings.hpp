// The settings without which fault tolerant Open MPI hangs or crashes, and the check that they are in force.
//
// scripts/mpirun.sh sets them; each entry stands for a failure that was measured. mpirun keeps PRTE_MCA_* from the
// ranks unless it is told to show them (-x), so under a plain mpirun they count as missing.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace spotlight {

// Value of an environment variable, or nullptr.
using GetEnv = std::function<const char*(const char* name)>;

// One line for each setting that is not in force, "NAME=value (what happens without it)"; empty: all is well.
// `fault_tolerant`: what World::fault_tolerant() says.
std::vector<std::string> MissingMpiSettings(const GetEnv& get_env, bool fault_tolerant);
// The same of this process's environment.
std::vector<std::string> MissingMpiSettings(bool fault_tolerant);

}  // namespace spotlight
