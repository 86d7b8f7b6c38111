#include "plan/bootstrap.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

// Between the two order statistics around `share` of the way; `sorted` is not empty.
double Quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Interval PercentileBootstrap(int items, const std::function<double(std::span<const int>)>& statistic, std::uint64_t key,
                             int resamples, double level) {
  SPOTLIGHT_REQUIRE(items >= 1 && resamples >= 1, "sizes of a bootstrap");
  SPOTLIGHT_REQUIRE(level > 0 && level < 1, "level of an interval");
  std::vector<int> drawn(static_cast<std::size_t>(items));
  std::vector<double> results;
  std::uint64_t index = 0;
  for (int i = 0; i < resamples; ++i) {
    for (int& item : drawn) item = static_cast<int>(UniformInt(key, index++, static_cast<std::uint64_t>(items)));
    const double result = statistic(drawn);
    if (!std::isnan(result)) results.push_back(result);
  }
  if (results.empty()) return {};
  std::sort(results.begin(), results.end());
  return {Quantile(results, (1 - level) / 2), Quantile(results, (1 + level) / 2)};
}

Interval MeanInterval(std::span<const double> values, std::uint64_t key, int resamples, double level) {
  std::vector<double> valid;
  for (const double value : values) {
    if (std::isfinite(value)) valid.push_back(value);
  }
  if (valid.empty()) return {};
  const auto mean = [&](std::span<const int> drawn) {
    double sum = 0;
    for (const int i : drawn) sum += valid[static_cast<std::size_t>(i)];
    return sum / static_cast<double>(drawn.size());
  };
  return PercentileBootstrap(static_cast<int>(valid.size()), mean, key, resamples, level);
}

}  // namespace spotlight
