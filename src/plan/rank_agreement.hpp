// What one way of exploring is worth: do its rewards order the seeds of a prompt as the reference's rewards do, and how
// widely would the seeds that it chooses spread? Pure.
//
// Everything is counted prompt by prompt, since seeds are only ever compared within one, and averaged over prompts.
#pragma once

#include <span>
#include <vector>

#include "config/config.hpp"
#include "plan/bootstrap.hpp"

namespace spotlight {

using SeedRewards = std::vector<std::vector<double>>;  // [prompts][seeds]

// All [prompts]; NaN where a prompt tells nothing (plan/correlation.hpp).
struct RankAgreement {
  std::vector<double> spearman, kendall;
  // Of the k / 2 best and the k / 2 worst seeds (ExtremeOverlap). Tied rewards count as drawn at random, so a reference
  // with ties does not overlap wholly with itself.
  std::vector<double> overlap;
  std::vector<double> spread;  // population std of the reference's rewards of the k seeds chosen by `rewards`
};

// Both [prompts][seeds], of the same prompts; k >= 2 of at least as many seeds (SPOTLIGHT_REQUIRE).
RankAgreement CompareRanks(const SeedRewards& reference, const SeedRewards& rewards, int k, ExploreConfig::Select rule);

// What `spread` lies between: [prompts] its expectation for k seeds drawn at random (the mean of 200 draws; equal
// arguments give equal numbers), and its largest value.
std::vector<double> RandomSpread(const SeedRewards& reference, int k);
std::vector<double> BestSpread(const SeedRewards& reference, int k);

// Of the way from random to best, on average over prompts, how much `spread` has gone; all [prompts]. NaN: they are
// equal.
double SpreadGained(std::span<const double> spread, std::span<const double> random, std::span<const double> best);

struct MeanOverPrompts {
  double mean = 0;    // NaN: undefined for all prompts
  Interval interval;  // 95 %, bootstrap over prompts; all are resampled alike, so rows of a table can be compared
};

// NaN values are left out.
MeanOverPrompts AverageOverPrompts(std::span<const double> values);

}  // namespace spotlight
