#include "plan/advantage.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Moments {
  double mean = kNan;
  double std = kNan;
  bool spread = false;  // at least two different values
};

// Two passes: one would lose the small spread of large rewards.
Moments MomentsOf(const std::vector<double>& values) {
  Moments moments;
  if (values.empty()) return moments;
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double value : values) sum += value;
  moments.mean = sum / n;
  double squares = 0;
  for (const double value : values) squares += (value - moments.mean) * (value - moments.mean);
  moments.spread = *std::min_element(values.begin(), values.end()) != *std::max_element(values.begin(), values.end());
  moments.std = moments.spread ? std::sqrt(squares / n) : 0;
  return moments;
}

}  // namespace

Advantages GroupAdvantages(std::span<const double> rewards, std::span<const int> group, int groups,
                           const AdvantageOptions& options) {
  SPOTLIGHT_REQUIRE(rewards.size() == group.size(), "one group a reward");
  std::vector<std::vector<double>> by_group(static_cast<std::size_t>(groups));
  std::vector<double> all;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    SPOTLIGHT_REQUIRE(group[i] >= 0 && group[i] < groups, "group index");
    if (std::isnan(rewards[i])) continue;
    by_group[static_cast<std::size_t>(group[i])].push_back(rewards[i]);
    all.push_back(rewards[i]);
  }

  Advantages result;
  const Moments batch = MomentsOf(all);
  result.global_std = batch.std;
  for (const std::vector<double>& values : by_group) {
    const Moments moments = MomentsOf(values);
    result.group_mean.push_back(moments.mean);
    result.group_std.push_back(moments.std);
    result.zero_spread.push_back(moments.spread ? 0 : 1);
  }
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    const auto g = static_cast<std::size_t>(group[i]);
    double advantage = kNan;
    if (!std::isnan(rewards[i])) {
      const double std = options.global_std ? result.global_std : result.group_std[g];
      // Exactly 0 without spread: the mean of equal values may differ from them in the last bit.
      advantage = result.zero_spread[g] != 0 ? 0 : (rewards[i] - result.group_mean[g]) / (std + options.epsilon);
      advantage = std::clamp(advantage, -options.clip, options.clip);
    }
    result.values.push_back(advantage);
  }
  return result;
}

}  // namespace spotlight
