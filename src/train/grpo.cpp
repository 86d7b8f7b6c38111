#include "train/grpo.hpp"

#include <algorithm>
#include <cmath>

namespace spotlight {

PairLoss ClippedObjective(double log_prob, double old_log_prob, double advantage, double clip_range) {
  PairLoss pair;
  pair.ratio = std::exp(log_prob - old_log_prob);
  const double free = -advantage * pair.ratio;
  const double clipped = -advantage * std::clamp(pair.ratio, 1.0 - clip_range, 1.0 + clip_range);
  pair.loss = std::max(free, clipped);
  pair.clipped = clipped > free;
  pair.dlog_prob = pair.clipped ? 0.0 : free;  // d(-A r)/d log_prob = -A r
  return pair;
}

}  // namespace spotlight
