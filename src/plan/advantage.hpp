// Group advantages of GRPO, in double.
//
//   A = clamp((R - mean of its group) / (std + epsilon), -clip, clip)
//
// std is the population kind (divisor n), over the group or over all valid rewards of the batch; the mean is always the
// group's (Flow-GRPO, arXiv 2505.05470). Mean and std of a group may be those of the larger pool that its seeds were
// selected from (DanceGRPO, arXiv 2505.07818): extremes then stay far from the mean instead of near +-1. With an
// explored pool these are rewards of older weights and cached steps, so its mean may lie beside the group's.
#pragma once

#include <limits>
#include <span>
#include <vector>

namespace spotlight {

struct AdvantageOptions {
  bool global_std = false;
  double epsilon = 1e-4;
  double clip = 5;
};

// Of a set of rewards; NaN: none is finite.
struct Moments {
  double mean = std::numeric_limits<double>::quiet_NaN();
  double std = std::numeric_limits<double>::quiet_NaN();  // population; exactly 0 if all are equal
};

// NaN and infinite rewards are left out.
Moments MomentsOf(std::span<const double> rewards);

struct Advantages {
  std::vector<double> values;              // [samples]; NaN where the reward is NaN: leave the sample out
  std::vector<double> group_mean;          // [groups]; NaN: no valid reward
  std::vector<double> group_std;           // [groups]; NaN: no valid reward
  std::vector<unsigned char> zero_spread;  // [groups]; 1: fewer than two different valid rewards, all its values are 0
  double global_std = 0;                   // over all valid rewards
};

// rewards [samples], group [samples] with values in [0, groups). NaN and infinite rewards count nowhere. pool [groups],
// or empty: what takes the place of a group's own mean and (unless global_std) std; one whose std is not above 0 takes
// nobody's. The moments that come back are always the groups' own, and a group without spread has advantages of 0
// whatever its pool: it tells no seed from another.
Advantages GroupAdvantages(std::span<const double> rewards, std::span<const int> group, int groups,
                           const AdvantageOptions& options, std::span<const Moments> pool = {});

}  // namespace spotlight
