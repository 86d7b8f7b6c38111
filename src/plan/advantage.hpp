// Group advantages of GRPO, in double.
//
//   A = clamp((R - mean of its group) / (std + epsilon), -clip, clip)
//
// std is the population kind (divisor n), over the group or over all valid rewards of the batch; the mean is always the
// group's (Flow-GRPO, arXiv 2505.05470).
#pragma once

#include <span>
#include <vector>

namespace spotlight {

struct AdvantageOptions {
  bool global_std = false;
  double epsilon = 1e-4;
  double clip = 5;
};

struct Advantages {
  std::vector<double> values;              // [samples]; NaN where the reward is NaN: leave the sample out
  std::vector<double> group_mean;          // [groups]; NaN: no valid reward
  std::vector<double> group_std;           // [groups]; NaN: no valid reward
  std::vector<unsigned char> zero_spread;  // [groups]; 1: fewer than two different valid rewards, all its values are 0
  double global_std = 0;                   // over all valid rewards
};

// rewards [samples], group [samples] with values in [0, groups). NaN rewards count nowhere.
Advantages GroupAdvantages(std::span<const double> rewards, std::span<const int> group, int groups,
                           const AdvantageOptions& options);

}  // namespace spotlight
