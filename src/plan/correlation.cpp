#include "plan/correlation.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Pairs {
  std::vector<double> x;
  std::vector<double> y;
};

Pairs ValidPairs(std::span<const double> x, std::span<const double> y) {
  SPOTLIGHT_REQUIRE(x.size() == y.size(), "pairs");
  Pairs pairs;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) continue;
    pairs.x.push_back(x[i]);
    pairs.y.push_back(y[i]);
  }
  return pairs;
}

// Ranks from 0; equal values get the average of the places they take.
std::vector<double> AverageRanks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + end - 1);
  }
  return ranks;
}

// Of finite values.
double Correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto spread = [](const std::vector<double>& v) {
    return std::any_of(v.begin(), v.end(), [&](double value) { return value != v.front(); });
  };
  if (!spread(x) || !spread(y)) return kNan;
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xy / std::sqrt(xx * yy);
}

// How much of a place among the k largest each value has.
std::vector<double> PartsOfBest(const std::vector<double>& values, int k) {
  std::vector<double> sorted = values;
  std::nth_element(sorted.begin(), sorted.begin() + (k - 1), sorted.end(), std::greater<>());
  const double last = sorted[static_cast<std::size_t>(k) - 1];
  const auto above = std::count_if(values.begin(), values.end(), [&](double value) { return value > last; });
  const auto tied = std::count(values.begin(), values.end(), last);
  const double part = (k - static_cast<double>(above)) / static_cast<double>(tied);
  std::vector<double> parts;
  parts.reserve(values.size());
  for (const double value : values) parts.push_back(value > last ? 1 : value == last ? part : 0);
  return parts;
}

}  // namespace

double Pearson(std::span<const double> x, std::span<const double> y) {
  const Pairs pairs = ValidPairs(x, y);
  return Correlation(pairs.x, pairs.y);
}

double Spearman(std::span<const double> x, std::span<const double> y) {
  const Pairs pairs = ValidPairs(x, y);
  return Correlation(AverageRanks(pairs.x), AverageRanks(pairs.y));
}

double KendallTauB(std::span<const double> x, std::span<const double> y) {
  const Pairs pairs = ValidPairs(x, y);
  const auto order = [](double a, double b) { return (a > b ? 1 : 0) - (a < b ? 1 : 0); };
  double agreement = 0;
  double untied_x = 0;
  double untied_y = 0;
  for (std::size_t i = 0; i < pairs.x.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const int a = order(pairs.x[i], pairs.x[j]);
      const int b = order(pairs.y[i], pairs.y[j]);
      agreement += a * b;
      untied_x += a * a;
      untied_y += b * b;
    }
  }
  return untied_x == 0 || untied_y == 0 ? kNan : agreement / std::sqrt(untied_x * untied_y);
}

double ExtremeOverlap(std::span<const double> x, std::span<const double> y, int k) {
  SPOTLIGHT_REQUIRE(k >= 1, "number of extremes");
  Pairs pairs = ValidPairs(x, y);
  if (std::ssize(pairs.x) < 2 * static_cast<std::ptrdiff_t>(k)) return kNan;
  double shared = 0;
  for (int side = 0; side < 2; ++side) {
    const std::vector<double> a = PartsOfBest(pairs.x, k);
    const std::vector<double> b = PartsOfBest(pairs.y, k);
    shared += std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    for (double& value : pairs.x) value = -value;
    for (double& value : pairs.y) value = -value;
  }
  return shared / (2.0 * k);
}

}  // namespace spotlight
