// Which denoising steps of an explored request run the whole network, if only so many may.
#pragma once

#include <vector>

namespace spotlight {

// [steps] whether a step is computed; `real` of them are, 1 <= real <= steps, the first one always. They are spread
// over the first C = max(0.8 steps, (steps + real) / 2) steps, rounded, and the rest reuse the last of them; where C is
// no multiple of `real` the shorter gaps come first. Of 10 steps: 0 2 5, 0 2 4 6, 0 1 2 4 6, 0 1 2 3 4 6, 0 1 2 3 4
// 5 7. Our own rule: early steps decide what the image will be, so a dense start pays, and where the stochastic window
// lies makes no difference to that (docs/algorithm.md, "Step caching", has what it was compared with).
std::vector<bool> SkipSchedule(int steps, int real);

}  // namespace spotlight
