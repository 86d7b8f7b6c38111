// Who plays which role: pure, so that it is the same on all ranks and can be tested without MPI.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace spotlight {

// kAll: the only process of a run without MPI, all roles in turn.
enum class Role : std::uint8_t { kAll, kCoordinator, kTrainer, kExplorer };

// "all", "coordinator", "trainer", "explorer".
std::string_view RoleName(Role role);

// Roles of `wishes.size()` ranks. wishes[r] is rank r's SPOTLIGHT_ROLE ("" if unset). Without wishes rank 0 is the
// coordinator, the next `trainers` ranks are trainers, the rest explorers; a rank with a wish gets it, and the places
// left over go to the other ranks in that order. One rank alone plays all roles.
// Throws UserError: no trainer, more trainers than ranks beside the coordinator, a wish that is no role, more than one
// coordinator wished, more trainers wished than `trainers`, every place wished away from a coordinator or a trainer.
std::vector<Role> PlanRoles(int trainers, const std::vector<std::string>& wishes);

}  // namespace spotlight
