#include "comm/roles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::array<std::string_view, 4> kRoleNames = {"all", "coordinator", "trainer", "explorer"};

Role ParseWish(const std::string& wish, std::size_t rank) {
  for (const Role role : {Role::kCoordinator, Role::kTrainer, Role::kExplorer}) {
    if (wish == RoleName(role)) return role;
  }
  throw UserError(
      fmt::format("SPOTLIGHT_ROLE of rank {}: '{}' is no role; set it to coordinator, trainer or explorer, or unset it",
                  rank, wish));
}

}  // namespace

std::string_view RoleName(Role role) { return kRoleNames[static_cast<std::size_t>(role)]; }

std::vector<Role> PlanRoles(int trainers, const std::vector<std::string>& wishes) {
  const int size = static_cast<int>(wishes.size());
  if (trainers < 1) {
    throw UserError(fmt::format("ranks/trainers: {}; at least 1 rank must train", trainers));
  }
  if (size == 1) {
    if (trainers > 1) {
      throw UserError(
          fmt::format("ranks/trainers: {} trainers, but there is only 1 process; start more with "
                      "scripts/mpirun.sh -np {}, or set ranks/trainers=1",
                      trainers, trainers + 2));
    }
    return {Role::kAll};
  }
  if (trainers > size - 1) {
    throw UserError(
        fmt::format("ranks/trainers: {} trainers and 1 coordinator do not fit into {} ranks; lower it to at "
                    "most {}, or start at least {} ranks",
                    trainers, size, size - 1, trainers + 1));
  }

  std::vector<Role> roles(wishes.size(), Role::kExplorer);
  int coordinators_left = 1;
  int trainers_left = trainers;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].empty()) continue;
    roles[rank] = ParseWish(wishes[rank], rank);
    if (roles[rank] == Role::kCoordinator) --coordinators_left;
    if (roles[rank] == Role::kTrainer) --trainers_left;
  }
  if (coordinators_left < 0) {
    throw UserError(fmt::format("SPOTLIGHT_ROLE: {} ranks want to be the coordinator; set it for one of them",
                                1 - coordinators_left));
  }
  if (trainers_left < 0) {
    throw UserError(
        fmt::format("SPOTLIGHT_ROLE: {} ranks want to be trainers, but ranks/trainers is {}; make them equal",
                    trainers - trainers_left, trainers));
  }
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (!wishes[rank].empty()) continue;
    if (coordinators_left > 0) {
      roles[rank] = Role::kCoordinator;
      --coordinators_left;
    } else if (trainers_left > 0) {
      roles[rank] = Role::kTrainer;
      --trainers_left;
    }
  }
  if (coordinators_left > 0 || trainers_left > 0) {
    throw UserError(fmt::format("SPOTLIGHT_ROLE: no rank is left to be {}; unset it on at least {} rank(s)",
                                coordinators_left > 0 ? "the coordinator" : "a trainer",
                                coordinators_left + trainers_left));
  }
  return roles;
}

}  // namespace spotlight
