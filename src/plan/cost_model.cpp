#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNewWeight = 0.2;     // of a report in the moving averages
constexpr double kCachedShare = 0.05;  // of a real pass, before a cached one was measured
constexpr std::size_t kNumbers = 5;    // of a degree in the state

void Average(double sum, double count, double& average) {
  if (count <= 0) return;
  const double value = sum / count;
  average = average < 0 ? value : average + kNewWeight * (value - average);
}

}  // namespace

SlotCounts CountSlots(std::span<const int> degrees) {
  SlotCounts slots;
  for (const int degree : degrees) ++slots[degree];
  return slots;
}

void CostModel::Observe(const CostReport& report) {
  SPOTLIGHT_REQUIRE(report.degree >= 1, "SP degree of a cost report");
  for (const double value : {report.requests, report.real_passes, report.real_seconds, report.cached_passes,
                             report.cached_seconds, report.decode_seconds, report.reward_seconds}) {
    SPOTLIGHT_REQUIRE(std::isfinite(value) && value >= 0, "numbers of a cost report");
  }
  // A batch without a real pass cannot be: the first step is always real. So there is nothing to learn from it.
  if (report.real_passes <= 0 || (explored_ && !report.explored)) return;
  if (report.explored && !std::exchange(explored_, true)) costs_.clear();
  Costs& costs = costs_[report.degree];
  Average(report.real_seconds, report.real_passes, costs.forward);
  Average(report.cached_seconds, report.cached_passes, costs.cached);
  Average(report.decode_seconds, report.requests, costs.decode);
  Average(report.reward_seconds, report.requests, costs.reward);
}

double CostModel::RequestSeconds(const Arm& arm, int degree) const {
  auto known = costs_.lower_bound(degree);
  if (known == costs_.end()) known = std::prev(known);
  const Costs& costs = known->second;
  const double slower = static_cast<double>(known->first) / degree;
  const double cached = costs.cached < 0 ? kCachedShare * costs.forward : costs.cached;
  return slower * (arm.steps * costs.forward + std::max(0, steps_ - arm.steps) * cached) + std::max(0.0, costs.decode) +
         std::max(0.0, costs.reward);
}

std::optional<double> CostModel::Seconds(const Arm& arm, int prompts, const SlotCounts& slots) const {
  if (costs_.empty()) return std::nullopt;
  struct Group {
    double slots;
    double request;     // seconds
    double rounds = 0;  // requests that each of its slots has taken
  };
  std::vector<Group> groups;
  groups.reserve(slots.size());
  double count = 0;
  double rate = 0;
  for (const auto& [degree, live] : slots) {
    if (live <= 0) continue;
    // A clock too coarse for a tiny model reads 0.
    groups.push_back({static_cast<double>(live), std::max(1e-9, RequestSeconds(arm, degree))});
    count += live;
    rate += live / groups.back().request;
  }
  if (groups.empty()) return std::numeric_limits<double>::infinity();

  // No more than all requests start until `early`: no need to go through these one by one.
  const double requests = static_cast<double>(prompts) * arm.seeds;
  const double early = (requests - count) / rate;
  double started = 0;
  if (early >= 0) {
    for (Group& group : groups) {
      group.rounds = std::floor(early / group.request) + 1;
      started += group.rounds * group.slots;
    }
  }
  while (started < requests) {
    Group& next = *std::min_element(groups.begin(), groups.end(), [](const Group& a, const Group& b) {
      return a.rounds * a.request < b.rounds * b.request;
    });
    ++next.rounds;
    started += next.slots;
  }
  double end = 0;
  for (const Group& group : groups) end = std::max(end, group.rounds * group.request);
  return end;
}

std::vector<double> CostModel::State() const {
  std::vector<double> state = {explored_ ? 1.0 : 0.0};
  for (const auto& [degree, costs] : costs_) {
    state.insert(state.end(), {static_cast<double>(degree), costs.forward, costs.cached, costs.decode, costs.reward});
  }
  return state;
}

void CostModel::Restore(std::span<const double> state) {
  SPOTLIGHT_REQUIRE(state.size() % kNumbers == 1, "numbers of a saved cost model");
  explored_ = state[0] != 0;
  costs_.clear();
  for (std::size_t i = 1; i < state.size(); i += kNumbers) {
    costs_[static_cast<int>(state[i])] = {state[i + 1], state[i + 2], state[i + 3], state[i + 4]};
  }
}

}  // namespace spotlight
