#include "driver/pass_groups.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "comm/sp_plan.hpp"

namespace spotlight {

std::vector<PassGroup> PlanPassGroups(const Config& config, World& world) {
  std::map<Role, std::vector<PlacedRank>> placed;
  const std::vector<std::string> everyone =
      world.AllGather(std::string(1, static_cast<char>(world.role())) + world.host());
  for (std::size_t rank = 0; rank < everyone.size(); ++rank) {
    placed[static_cast<Role>(everyone[rank].at(0))].push_back({static_cast<int>(rank), everyone[rank].substr(1)});
  }
  std::vector<PassGroup> groups;
  for (const auto& [key, role, degree] :
       {std::tuple("ranks/trainer_sp", Role::kTrainer, config.ranks.trainer_sp), std::tuple("", Role::kAll, 1)}) {
    for (auto& ranks : PlanSpGroups(key, role, placed[role], degree)) groups.push_back({role, std::move(ranks)});
  }
  return groups;
}

const PassGroup& GroupOf(const std::vector<PassGroup>& groups, int rank) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const PassGroup& group) {
    return std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end();
  });
  SPOTLIGHT_REQUIRE(found != groups.end(), "rank " + std::to_string(rank) + " is in no group");
  return *found;
}

}  // namespace spotlight
