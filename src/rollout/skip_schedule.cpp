#include "rollout/skip_schedule.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace spotlight {

std::vector<bool> SkipSchedule(int steps, int real) {
  SPOTLIGHT_REQUIRE(real >= 1 && real <= steps, "some of the steps are computed");
  const int covered = std::max((4 * steps + 2) / 5, (steps + real + 1) / 2);  // both rounded
  const int gap = covered / real, short_gaps = real - covered % real;
  std::vector<bool> computed(static_cast<std::size_t>(steps), false);
  for (int k = 0; k < real; ++k) computed[static_cast<std::size_t>(k * gap + std::max(0, k - short_gaps))] = true;
  return computed;
}

}  // namespace spotlight
