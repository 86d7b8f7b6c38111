// Which seeds of a prompt are trained on: those with the strongest contrast of rewards.
//
// Maximum variance: the k-subset of n rewards with the largest variance is the i lowest and the k - i highest for some
// i (arXiv 2512.15347), so k + 1 splits of the sorted rewards are tried: kVariance. Best and worst halves: i = floor(k
// / 2) (DanceGRPO, arXiv 2505.07818): kHalves, which is weaker for skewed or 0/1 rewards.
#pragma once

#include <span>
#include <vector>

#include "config/config.hpp"

namespace spotlight {

// Indices into `rewards` of the `k` chosen seeds, ascending. NaN rewards are never chosen; with fewer than k valid
// ones all valid ones are returned. Equal rewards: the lower index counts as the better one; splits of equal variance:
// the one with more of the best, so k equal rewards give the first k.
std::vector<int> SelectSeeds(std::span<const double> rewards, int k, ExploreConfig::Select rule);

}  // namespace spotlight
