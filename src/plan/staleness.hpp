// Is exploration still worth its name? The running estimate from control seeds: those that were kept by chance, so that
// selection has not restricted their range.
//
//   rho = Pearson's correlation of (explored reward - m) and (fresh reward - m),  m = mean of the prompt's explored
//   pool
//
// over the control seeds of the last `window` iterations, with a bootstrap interval. m takes away that some prompts are
// easier than others; as the seed is one of the n of its pool, rho comes out low by a share of (1 - rho) / n. What the
// correlation lacks from 1 is owed to older weights and to cached steps together; feed it from iterations without
// cached steps to see the weights alone.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "plan/bootstrap.hpp"

namespace spotlight {

struct ControlSeed {
  std::uint32_t iteration = 0;
  double explored = 0;
  double fresh = 0;
  double pool_mean = 0;  // of the explored rewards of the seed's prompt
};

struct StalenessOptions {
  int window = 50;     // iterations
  int least = 30;      // seeds for an estimate
  double bound = 0.5;  // rho: at half, selection keeps about a third of what it gains at 1 (k of 3 k seeds)
};

struct Staleness {
  int seeds = 0;
  double rho = 0;        // NaN: too few seeds, or a side without spread
  Interval interval;     // 95 %
  bool harmful = false;  // the upper end of the interval is below the bound
};

class StalenessEstimate {
 public:
  explicit StalenessEstimate(const StalenessOptions& options = {});

  // Iterations in ascending order (SPOTLIGHT_REQUIRE). A seed with a NaN or infinite number is left out.
  void Add(const ControlSeed& seed);

  // Staleness::rho alone.
  double Correlation() const;
  // 1,000 resamples: some milliseconds. Equal for equal seeds.
  Staleness Estimate() const;

  // [seeds x 4]: iteration, explored, fresh, pool mean; for checkpoints.
  std::vector<double> State() const;
  void Restore(std::span<const double> state);

 private:
  struct Pairs {
    std::vector<double> explored, fresh;  // less the pool's mean; empty: too few
  };
  Pairs Deviations() const;

  StalenessOptions options_;
  std::deque<ControlSeed> seeds_;
};

}  // namespace spotlight
