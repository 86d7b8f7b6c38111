// Which trainers run passes of the transformer together in this job. Explorers form groups as they come and go
// (schedule/membership.hpp).
#pragma once

#include <vector>

#include "comm/world.hpp"
#include "config/config.hpp"

namespace spotlight {

// One or more ranks of one role and one host; the first one leads: it alone talks to the coordinator.
struct PassGroup {
  Role role = Role::kAll;
  std::vector<int> ranks;
};

// Collective, after AssignRoles: the groups of all trainers, or the one process with all roles. UserError, on all
// ranks, if a host's trainers do not divide into groups of ranks/trainer_sp.
std::vector<PassGroup> PlanPassGroups(const Config& config, World& world);

// The group of a rank; SPOTLIGHT_REQUIREs that there is one.
const PassGroup& GroupOf(const std::vector<PassGroup>& groups, int rank);

}  // namespace spotlight
