// What the scenarios of ranks.cpp, sp_ranks.cpp and pool_ranks.cpp share.
#pragma once

#include <map>
#include <string>

#include "base/error.hpp"
#include "comm/world.hpp"

namespace spotlight {

#define EXPECT(condition) SPOTLIGHT_REQUIRE(condition, "test")

// Returns the rank's exit code.
using Scenario = int (*)(World&);

// Scenarios whose name begins with "windows_" are those without it, in a world that uses windows: over memory of the
// host, and with messages in many pieces.
inline bool uses_windows = false;

// Scenarios of sequence-parallel groups, by name.
std::map<std::string, Scenario> SpScenarios();
// Of the pool of spot ranks.
std::map<std::string, Scenario> PoolScenarios();

}  // namespace spotlight
