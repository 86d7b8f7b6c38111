// Which denoising steps of an explored request run the whole network, if only so many may.
#pragma once

#include <vector>

namespace spotlight {

// [steps] whether a step is computed; `real` of them are, 1 <= real <= steps, the first one always. The k-th, from 0,
// is step floor(steps (k / real)^1.25), or the one after its predecessor: dense early, where a step moves most and all
// later ones depend on it.
std::vector<bool> SkipSchedule(int steps, int real);

}  // namespace spotlight
