#include "plan/selection.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

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

// Appends to `chosen` those of `valid` (indices of finite rewards, ascending) that the rule picks, at most k.
void Pick(std::span<const double> rewards, const std::vector<int>& valid, int k, ExploreConfig::Select rule,
          std::vector<int>& chosen) {
  if (k >= std::ssize(valid)) {
    chosen.insert(chosen.end(), valid.begin(), valid.end());
    return;
  }
  if (k == 0) return;
  std::vector<std::pair<double, int>> order;  // best first
  order.reserve(valid.size());
  for (const int i : valid) order.emplace_back(-rewards[static_cast<std::size_t>(i)], i);
  std::sort(order.begin(), order.end());

  int low = k / 2;
  if (rule == ExploreConfig::Select::kVariance) {
    std::vector<double> sorted;
    sorted.reserve(order.size());
    for (const auto& [negative, i] : order) sorted.push_back(-negative);
    low = BestLowCount(sorted, k);
  }
  for (auto best = order.begin(); best != order.begin() + (k - low); ++best) chosen.push_back(best->second);
  for (auto worst = order.end() - low; worst != order.end(); ++worst) chosen.push_back(worst->second);
}

std::vector<int> Valid(std::span<const double> rewards) {
  std::vector<int> valid;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (std::isfinite(rewards[i])) valid.push_back(static_cast<int>(i));
  }
  return valid;
}

}  // namespace

std::vector<int> SelectSeeds(std::span<const double> rewards, int k, ExploreConfig::Select rule) {
  return SelectSeedsWithControl(rewards, k, rule, 0, 0).kept;
}

ControlledSeeds SelectSeedsWithControl(std::span<const double> rewards, int k, ExploreConfig::Select rule, double share,
                                       std::uint64_t key) {
  SPOTLIGHT_REQUIRE(k >= 0, "number of seeds to keep");
  SPOTLIGHT_REQUIRE(share >= 0 && share <= 1, "share of control seeds");
  std::vector<int> valid = Valid(rewards);
  const double expected = share * std::min(k, static_cast<int>(valid.size()));
  int draws = static_cast<int>(expected);
  if (UniformDouble(key, 0) < expected - draws) ++draws;

  ControlledSeeds seeds;
  std::vector<bool> taken(rewards.size());
  std::vector<int> left = valid;
  for (std::uint64_t i = 0; std::ssize(seeds.kept) < draws; ++i) {
    const std::size_t drawn = UniformInt(key, i, left.size());
    seeds.kept.push_back(left[drawn]);
    taken[static_cast<std::size_t>(left[drawn])] = true;
    left[drawn] = left.back();
    left.pop_back();
  }
  std::erase_if(valid, [&](int i) { return taken[static_cast<std::size_t>(i)]; });
  Pick(rewards, valid, k - draws, rule, seeds.kept);
  std::sort(seeds.kept.begin(), seeds.kept.end());
  for (const int i : seeds.kept) seeds.control.push_back(taken[static_cast<std::size_t>(i)] ? 1 : 0);
  return seeds;
}

}  // namespace spotlight
