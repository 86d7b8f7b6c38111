#include "plan/advantage.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool Spread(std::span<const double> values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end();
}

}  // namespace

// Two passes: one would lose the small spread of large rewards.
Moments MomentsOf(std::span<const double> rewards) {
  std::vector<double> values;
  for (const double reward : rewards) {
    if (std::isfinite(reward)) values.push_back(reward);
  }
  if (values.empty()) return {};
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  const double mean = sum / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, Spread(values) ? std::sqrt(squares / n) : 0};
}

Advantages GroupAdvantages(std::span<const double> rewards, std::span<const int> group, int groups,
                           const AdvantageOptions& options, std::span<const Moments> pool) {
  SPOTLIGHT_REQUIRE(rewards.size() == group.size(), "one group a reward");
  SPOTLIGHT_REQUIRE(pool.empty() || std::ssize(pool) == groups, "one pool a group");
  std::vector<std::vector<double>> by_group(static_cast<std::size_t>(groups));
  std::vector<double> all;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    SPOTLIGHT_REQUIRE(group[i] >= 0 && group[i] < groups, "group index");
    if (!std::isfinite(rewards[i])) continue;
    by_group[static_cast<std::size_t>(group[i])].push_back(rewards[i]);
    all.push_back(rewards[i]);
  }

  Advantages result;
  result.global_std = MomentsOf(all).std;
  std::vector<Moments> yardsticks;
  for (const std::vector<double>& values : by_group) {
    const Moments own = MomentsOf(values);
    result.group_mean.push_back(own.mean);
    result.group_std.push_back(own.std);
    result.zero_spread.push_back(Spread(values) ? 0 : 1);
    const bool pooled = !pool.empty() && pool[yardsticks.size()].std > 0;
    yardsticks.push_back(pooled ? pool[yardsticks.size()] : own);
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    const auto g = static_cast<std::size_t>(group[i]);
    double advantage = kNan;
    if (std::isfinite(rewards[i])) {
      const double std = options.global_std ? result.global_std : yardsticks[g].std;
      // Exactly 0 without spread: the mean of equal values may differ from them in the last bit.
      advantage = result.zero_spread[g] != 0 ? 0 : (rewards[i] - yardsticks[g].mean) / (std + options.epsilon);
      advantage = std::clamp(advantage, -options.clip, options.clip);
    }
    result.values.push_back(advantage);
  }
  return result;
}

}  // namespace spotlight
