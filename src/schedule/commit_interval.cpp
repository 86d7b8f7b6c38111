#include "schedule/commit_interval.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"

namespace spotlight {

int StepsBetweenCommits(const CommitCost& cost, int steps) {
  SPOTLIGHT_REQUIRE(steps >= 1, std::to_string(steps) + " steps");
  SPOTLIGHT_REQUIRE(cost.step_seconds > 0 && cost.commit_seconds >= 0 && cost.losses_per_second >= 0,
                    std::to_string(cost.step_seconds) + " s a step, " + std::to_string(cost.commit_seconds) +
                        " s a commit, " + std::to_string(cost.losses_per_second) + " losses a second");
  const double allowed = cost.commit_seconds / (kCommitOverhead * cost.step_seconds);  // steps, at least
  if (allowed <= 1) return 1;
  const double young = std::sqrt(2 * cost.commit_seconds / cost.losses_per_second) / cost.step_seconds;  // or infinite
  return static_cast<int>(std::min<double>(steps, std::max(std::ceil(allowed), std::round(young))));
}

}  // namespace spotlight
