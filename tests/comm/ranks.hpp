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

// Scenarios of sequence-parallel groups, by name.
std::map<std::string, Scenario> SpScenarios();
// Of the pool of spot ranks.
std::map<std::string, Scenario> PoolScenarios();
// Of trainers that may have GPUs; empty if this was built without CUDA.
std::map<std::string, Scenario> NcclScenarios();

}  // namespace spotlight
