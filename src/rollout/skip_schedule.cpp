#include "rollout/skip_schedule.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spotlight {

std::vector<bool> SkipSchedule(int steps, int real) {
  SPOTLIGHT_REQUIRE(real >= 1 && real <= steps, "some of the steps are computed");
  std::vector<bool> computed(static_cast<std::size_t>(steps), false);
  int next = 0;
  for (int k = 0; k < real; ++k) {
    const int wanted = static_cast<int>(steps * std::pow(static_cast<double>(k) / real, 1.25));
    next = std::clamp(wanted, next, steps - (real - k));
    computed[static_cast<std::size_t>(next++)] = true;
  }
  return computed;
}

}  // namespace spotlight
