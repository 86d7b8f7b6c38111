#include "comm/sp_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <numeric>

#include "base/error.hpp"

namespace spotlight {

std::vector<std::vector<int>> PlanSpGroups(std::string_view key, Role role, std::span<const PlacedRank> ranks,
                                           int degree) {
  SPOTLIGHT_REQUIRE(degree >= 1, "degree");
  struct Run {
    std::string host;
    int length = 0;
  };
  std::vector<Run> runs;
  for (const PlacedRank& placed : ranks) {
    if (runs.empty() || runs.back().host != placed.host) runs.push_back({placed.host, 0});
    ++runs.back().length;
  }
  int common = 0;  // greatest common divisor of all runs
  for (const Run& run : runs) common = std::gcd(common, run.length);
  if (common % degree != 0) {
    std::vector<std::string> counts;
    for (const Run& run : runs) counts.push_back(fmt::format("{} on {}", run.length, run.host));
    std::vector<int> allowed;
    for (int divisor = 1; divisor <= common; ++divisor) {
      if (common % divisor == 0) allowed.push_back(divisor);
    }
    throw UserError(fmt::format(
        "{}={}: the {} ranks are {} (in rank order), and a group is {} ranks in a row on one host, none left "
        "over; set it to {}, or start a multiple of {} of them on each host, host by host",
        key, degree, RoleName(role), fmt::join(counts, ", "), degree, fmt::join(allowed, ", "), degree));
  }
  std::vector<std::vector<int>> groups;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i % static_cast<std::size_t>(degree) == 0) groups.emplace_back();
    groups.back().push_back(ranks[i].rank);
  }
  return groups;
}

}  // namespace spotlight
