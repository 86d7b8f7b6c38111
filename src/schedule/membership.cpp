#include "schedule/membership.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

// What is left of a group of the plan before, or ranks that were in none (number -1).
struct Piece {
  int number = -1;
  int size = 0;                           // that the group had
  std::vector<std::pair<int, int>> kept;  // (index, rank), ascending

  bool whole() const { return std::ssize(kept) == size; }
};

int LargestDivisor(int heads, int at_most) {
  int degree = std::max(1, std::min(heads, at_most));
  while (heads % degree != 0) --degree;
  return degree;
}

// The host's active ranks by the groups they were in; newcomers and called-up ranks in rank order.
struct HostRanks {
  std::map<int, Piece> pieces;  // by number
  std::vector<int> free;
  std::vector<int> parked;
  int active = 0;
};

HostRanks CollectHost(const std::vector<const Member*>& members) {
  HostRanks host;
  for (const Member* member : members) {
    if (member->state == MemberState::kParked) host.parked.push_back(member->rank);
    if (member->state != MemberState::kActive) continue;
    ++host.active;
    if (member->group < 0) {
      host.free.push_back(member->rank);
      continue;
    }
    Piece& piece = host.pieces[member->group];
    piece.number = member->group;
    piece.size = member->group_size;
    piece.kept.emplace_back(member->index, member->rank);
  }
  for (auto& [number, piece] : host.pieces) {
    std::sort(piece.kept.begin(), piece.kept.end());
    const auto twice = std::adjacent_find(piece.kept.begin(), piece.kept.end(),
                                          [](const auto& a, const auto& b) { return a.first == b.first; });
    SPOTLIGHT_REQUIRE(
        twice == piece.kept.end() && piece.kept.front().first >= 0 && piece.kept.back().first < piece.size,
        "places of group " + std::to_string(number));
  }
  return host;
}

// At most `wanted` of the host's parked ranks work from now on.
void CallUp(HostRanks& host, std::ptrdiff_t wanted) {
  const auto called = host.parked.begin() + std::clamp<std::ptrdiff_t>(wanted, 0, std::ssize(host.parked));
  host.active += static_cast<int>(called - host.parked.begin());
  host.free.insert(host.free.end(), host.parked.begin(), called);
  host.parked.erase(host.parked.begin(), called);
  std::sort(host.free.begin(), host.free.end());
}

// Each host fills its own empty places first; then whoever is left fills those of other hosts.
void CallUpParked(std::map<int, HostRanks>& hosts, const std::map<int, int>& active_per_host) {
  int missing = 0;
  for (const auto& [number, active] : active_per_host) missing += active;
  for (auto& [number, host] : hosts) {
    const auto own = active_per_host.find(number);
    if (active_per_host.empty()) CallUp(host, std::ssize(host.parked));
    if (own != active_per_host.end()) CallUp(host, own->second - host.active);
    missing -= host.active;
  }
  for (auto& [number, host] : hosts) {
    const int before = host.active;
    CallUp(host, missing);
    missing -= host.active - before;
  }
}

// Ranks for one group of `size`, taken from the pieces and the free ranks. The piece that keeps the most ranks is the
// base; its ranks stay in their places if the group has its old size.
PlannedGroup Build(int size, std::map<int, Piece>& pieces, std::vector<int>& free) {
  PlannedGroup group;
  group.number = -1;
  auto base = pieces.end();
  const auto stays = [&](const Piece& piece) { return std::min<std::ptrdiff_t>(std::ssize(piece.kept), size); };
  for (auto piece = pieces.begin(); piece != pieces.end(); ++piece) {
    if (base == pieces.end() || stays(piece->second) > stays(base->second)) base = piece;
  }
  std::vector<int> places(static_cast<std::size_t>(size), -1);
  if (base != pieces.end()) {
    std::vector<std::pair<int, int>>& kept = base->second.kept;
    group.number = base->second.number;
    const bool in_place = base->second.size == size;
    const std::ptrdiff_t staying = stays(base->second);
    for (std::ptrdiff_t i = 0; i < staying; ++i) {
      const auto& [index, rank] = kept[static_cast<std::size_t>(i)];
      places[static_cast<std::size_t>(in_place ? index : i)] = rank;
    }
    kept.erase(kept.begin(), kept.begin() + staying);
    base->second.number = -1;  // what is left over makes a new group
    if (kept.empty()) pieces.erase(base);
  }
  for (int& place : places) {
    if (place >= 0) continue;
    if (free.empty()) {
      // Break up the piece with the fewest ranks.
      const auto least = std::min_element(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
        return a.second.kept.size() < b.second.kept.size();
      });
      for (const auto& [index, rank] : least->second.kept) free.push_back(rank);
      pieces.erase(least);
    }
    place = free.front();
    free.erase(free.begin());
  }
  group.ranks = std::move(places);
  return group;
}

std::vector<PlannedGroup> PlanHost(HostRanks& host, const GroupRules& rules) {
  std::vector<PlannedGroup> groups;
  std::vector<int> sizes = GroupSizes(host.active, rules.degree, rules.heads);
  // Whole groups of a size that is wanted stay.
  for (auto piece = host.pieces.begin(); piece != host.pieces.end();) {
    const auto size = std::find(sizes.begin(), sizes.end(), piece->second.size);
    if (!piece->second.whole() || size == sizes.end()) {
      ++piece;
      continue;
    }
    PlannedGroup group{piece->first, 0, {}, true};
    for (const auto& [index, rank] : piece->second.kept) group.ranks.push_back(rank);
    groups.push_back(std::move(group));
    sizes.erase(size);
    piece = host.pieces.erase(piece);
  }
  for (const int size : sizes) groups.push_back(Build(size, host.pieces, host.free));
  return groups;
}

// In units of the time of one request on one rank.
double BatchTime(const PhaseWork& work, int size) {
  double efficiency = 1;
  for (const auto& [degree, measured] : work.efficiency) {
    if (degree > 1 && degree <= size) efficiency = measured;  // of the nearest degree that was measured
  }
  return work.batch / (size * efficiency);
}

double Makespan(const PhaseWork& work, int degree, int heads) {
  std::priority_queue<std::pair<double, double>, std::vector<std::pair<double, double>>, std::greater<>> groups;
  for (const int ranks : work.ranks_of_host) {
    for (const int size : GroupSizes(ranks, degree, heads)) {
      const double seconds = BatchTime(work, size);
      groups.emplace(seconds, seconds);  // (end of the next batch, length of a batch)
    }
  }
  double end = 0;
  for (int left = work.requests; left > 0 && !groups.empty(); left -= work.batch) {
    const auto [seconds, length] = groups.top();
    groups.pop();
    end = seconds;  // ends come in order: a group's next one is never before the last
    groups.emplace(seconds + length, length);
  }
  return end;
}

}  // namespace

std::vector<int> GroupSizes(int ranks, int degree, int heads) {
  SPOTLIGHT_REQUIRE(ranks >= 0 && degree >= 1 && heads >= 1, std::to_string(ranks) + " ranks in groups of " +
                                                                 std::to_string(degree) + " with " +
                                                                 std::to_string(heads) + " heads");
  std::vector<int> sizes;
  while (ranks > 0) {
    sizes.push_back(LargestDivisor(heads, std::min(degree, ranks)));
    ranks -= sizes.back();
  }
  return sizes;
}

GroupPlan PlanGroups(std::vector<Member> members, const GroupRules& rules) {
  SPOTLIGHT_REQUIRE(rules.degree >= 1 && rules.heads >= 1,
                    "degree " + std::to_string(rules.degree) + ", " + std::to_string(rules.heads) + " heads");
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.rank < b.rank; });
  std::map<int, std::vector<const Member*>> members_of_host;
  std::map<int, int> host_of_group;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Member& member = members[i];
    SPOTLIGHT_REQUIRE(i == 0 || members[i - 1].rank != member.rank, "rank " + std::to_string(member.rank) + " twice");
    if (member.group >= 0) {
      const int host = host_of_group.try_emplace(member.group, member.host).first->second;
      SPOTLIGHT_REQUIRE(host == member.host, "group " + std::to_string(member.group) + " spans hosts");
    }
    members_of_host[member.host].push_back(&member);
  }
  std::map<int, HostRanks> hosts;
  for (const auto& [number, here] : members_of_host) hosts[number] = CollectHost(here);
  CallUpParked(hosts, rules.active_per_host);
  GroupPlan plan;
  std::set<int> numbers;
  for (auto& [number, host] : hosts) {
    for (PlannedGroup& group : PlanHost(host, rules)) {
      group.host = number;
      if (group.number >= 0) numbers.insert(group.number);
      plan.groups.push_back(std::move(group));
    }
    plan.parked.insert(plan.parked.end(), host.parked.begin(), host.parked.end());
  }
  int next = 0;  // new groups get the smallest free numbers
  for (PlannedGroup& group : plan.groups) {
    if (group.number >= 0) continue;
    while (numbers.contains(next)) ++next;
    group.number = next++;
  }
  std::sort(plan.groups.begin(), plan.groups.end(),
            [](const PlannedGroup& a, const PlannedGroup& b) { return a.number < b.number; });
  std::sort(plan.parked.begin(), plan.parked.end());
  return plan;
}

int BestDegree(const PhaseWork& work, int heads) {
  SPOTLIGHT_REQUIRE(work.batch >= 1 && work.requests >= 0,
                    std::to_string(work.requests) + " requests in batches of " + std::to_string(work.batch));
  int best = 1;
  double shortest = Makespan(work, 1, heads);
  for (const auto& [degree, efficiency] : work.efficiency) {
    SPOTLIGHT_REQUIRE(std::isfinite(efficiency) && efficiency > 0, "efficiency " + std::to_string(efficiency));
    if (degree <= 1 || heads % degree != 0) continue;
    const double makespan = Makespan(work, degree, heads);
    if (makespan >= shortest * (1 - 1e-9)) continue;
    shortest = makespan;
    best = degree;
  }
  return best;
}

}  // namespace spotlight
