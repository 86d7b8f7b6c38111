#include "plan/selection.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.hpp"

namespace spotlight {
namespace {

// How many of the `k` come from the low end of `sorted` (best first) for the largest variance.
int BestLowCount(const std::vector<double>& sorted, int k) {
  // About the mean, so that the sums of squares do not cancel.
  double mean = 0;
  for (const double reward : sorted) mean += reward;
  mean /= static_cast<double>(sorted.size());
  double sum = 0;
  double squares = 0;
  const auto move = [&](std::size_t i, double sign) {
    const double x = sorted[i] - mean;
    sum += sign * x;
    squares += sign * x * x;
  };
  for (int i = 0; i < k; ++i) move(static_cast<std::size_t>(i), 1);
  int best_low = 0;
  double best = squares - sum * sum / k;
  const double margin = 1e-12 * std::max(1e-300, squares);
  for (int low = 1; low <= k; ++low) {
    move(static_cast<std::size_t>(k - low), -1);
    move(sorted.size() - static_cast<std::size_t>(low), 1);
    const double spread = squares - sum * sum / k;  // k times the variance
    if (spread > best + margin) {                   // rounding is no gain
      best = spread;
      best_low = low;
    }
  }
  return best_low;
}

}  // namespace

std::vector<int> SelectSeeds(std::span<const double> rewards, int k, ExploreConfig::Select rule) {
  SPOTLIGHT_REQUIRE(k >= 0, "number of seeds to keep");
  std::vector<int> order;  // best first
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (!std::isnan(rewards[i])) order.push_back(static_cast<int>(i));
  }
  if (static_cast<std::size_t>(k) >= order.size()) return order;
  if (k == 0) return {};
  const auto reward = [&](int i) { return rewards[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return reward(a) > reward(b); });

  int low = k / 2;
  if (rule == ExploreConfig::Select::kVariance) {
    std::vector<double> sorted;
    for (const int i : order) sorted.push_back(reward(i));
    low = BestLowCount(sorted, k);
  }
  std::vector<int> chosen(order.begin(), order.begin() + (k - low));
  chosen.insert(chosen.end(), order.end() - low, order.end());
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace spotlight
