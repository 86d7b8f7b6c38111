// Which seeds of a prompt are trained on: those with the strongest contrast of rewards, and a few drawn at random.
//
// Maximum variance: the k-subset of n rewards with the largest variance is the i lowest and the k - i highest for some
// i (arXiv 2512.15347), so k + 1 splits of the sorted rewards are tried: kVariance. Best and worst halves: i = floor(k
// / 2) (DanceGRPO, arXiv 2505.07818): kHalves, which is weaker for skewed or 0/1 rewards.
//
// Seeds chosen by their explored reward tell little about how well that reward predicts the fresh one: their range is
// not that of all seeds. The control seeds, drawn before any rule is applied, do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/config.hpp"

namespace spotlight {

// Indices into `rewards` of the `k` chosen seeds, ascending; O(n log n). NaN and infinite rewards are never chosen;
// with fewer than k valid ones all valid ones are returned. Equal rewards: the lower index counts as the better one;
// splits of equal variance: the one with more of the best, so k equal rewards give the first k. k >= 0
// (SPOTLIGHT_REQUIRE).
std::vector<int> SelectSeeds(std::span<const double> rewards, int k, ExploreConfig::Select rule);

struct ControlledSeeds {
  std::vector<int> kept;               // as SelectSeeds returns them
  std::vector<unsigned char> control;  // [kept] 1: drawn at random from all valid seeds
};

// As SelectSeeds, but share * k of the k (on average: the fraction is drawn) are drawn from all valid seeds alike; the
// rule fills the rest from what they leave. share in [0, 1] (SPOTLIGHT_REQUIRE). `key` names the stream of random
// numbers (base/random.hpp); equal arguments give equal seeds.
ControlledSeeds SelectSeedsWithControl(std::span<const double> rewards, int k, ExploreConfig::Select rule, double share,
                                       std::uint64_t key);

}  // namespace spotlight
