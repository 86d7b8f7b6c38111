// Which ranks form which sequence-parallel group.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/roles.hpp"

namespace spotlight {

struct PlacedRank {
  int rank = 0;  // in the world
  std::string host;
};

// Groups of `degree` consecutive ranks of `ranks` (all ranks of one role in rank order), each within one host: group g
// is ranks[g * degree .. (g + 1) * degree). Throws a UserError that begins with `key` (the input key of the degree)
// unless each run of ranks on one host is a multiple of the degree. degree >= 1.
std::vector<std::vector<int>> PlanSpGroups(std::string_view key, Role role, std::span<const PlacedRank> ranks,
                                           int degree);

}  // namespace spotlight
