// Confidence intervals by the percentile bootstrap (Efron, Ann. Statist. 7, 1979).
//
// Chosen over Fisher's z: rewards are 0/1 or have many ties, statistics near 1 are skewed, and one function serves
// correlations, overlaps and gains alike. What is drawn must be independent: prompts, not the seeds of a prompt. With
// fewer than some 20 items the interval comes out too narrow.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>

namespace spotlight {

struct Interval {
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

// `statistic` of items 0 .. items - 1 drawn with replacement (it gets the drawn ones' indices), `resamples` times; the
// middle `level` of what it returns. NaN results are left out; without others the interval is NaN. `key` names the
// stream of random numbers: equal arguments give equal intervals. items >= 1, resamples >= 1, level in (0, 1)
// (SPOTLIGHT_REQUIRE).
Interval PercentileBootstrap(int items, const std::function<double(std::span<const int>)>& statistic, std::uint64_t key,
                             int resamples = 1000, double level = 0.95);

// Of the mean; NaN and infinite values are left out, and without others the interval is NaN.
Interval MeanInterval(std::span<const double> values, std::uint64_t key, int resamples = 1000, double level = 0.95);

}  // namespace spotlight
