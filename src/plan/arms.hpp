// What a planner may choose: arms (seeds explored per prompt, real forwards of the network per seed).
#pragma once

#include <vector>

namespace spotlight {

// The other T - steps denoising steps of a seed are cached. {0, 0}: no exploration.
struct Arm {
  int seeds = 0;
  int steps = 0;

  bool operator==(const Arm&) const = default;
};

// The grid, sorted by seeds, then steps: seeds 1, 1.5, 2, 3 and 4 times `images` (rounded up) as far as they are below
// `most_seeds`, and most_seeds itself; steps 0.3, 0.4, 0.6, 0.8 and 1 times T = `steps` (rounded up). Each arm once.
// All arguments >= 1 (SPOTLIGHT_REQUIRE). The factors are ours; those of the paper are unknown.
std::vector<Arm> ArmGrid(int images, int most_seeds, int steps);

}  // namespace spotlight
