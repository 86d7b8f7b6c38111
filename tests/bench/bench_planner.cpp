// What planning and selecting seeds cost an iteration: both run on the coordinator while the workers wait.
//
//   bench_planner [REPEATS]
//
// The goals: a decision among 10,000 arms times prompts within 1 ms, selection from 10,000 seeds within 1 ms. Rewards
// are either all different or 0/1, where sorting has mostly ties.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "plan/exploration_planner.hpp"
#include "plan/selection.hpp"
#include "plan/staleness.hpp"
#include "timing.hpp"

namespace spotlight {
namespace {

// Every arm was pulled; slots of three degrees.
double DecideSeconds(std::vector<Arm> arms, int prompts, int repeats, ArmRule rule) {
  ExplorationPlanner planner({.bandit = {.rule = rule}, .arms = arms});
  for (const int degree : {1, 2, 4}) {
    planner.ObserveBatch({.degree = degree, .requests = 1, .real_passes = 10, .real_seconds = 1.0 / degree});
  }
  planner.ObserveTraining(1e9, 0, false);
  std::uint32_t iteration = 0;
  for (const Arm& arm : arms) planner.Credit({++iteration, arm, 1, 1, UniformDouble(1, iteration)});
  const SlotCounts slots = {{1, 40}, {2, 16}, {4, 8}};
  return LeastCpu(Measure(repeats, [&] { planner.Decide(prompts, slots, iteration); }));
}

double SelectSeconds(int seeds, int repeats, bool binary) {
  std::vector<double> rewards;
  for (int i = 0; i < seeds; ++i) {
    const double u = UniformDouble(2, static_cast<std::uint64_t>(i));
    rewards.push_back(binary ? std::floor(2 * u) : u);
  }
  return LeastCpu(Measure(
      repeats, [&] { SelectSeedsWithControl(rewards, seeds / 4, ExploreConfig::Select::kVariance, 1.0 / 16, 3); }));
}

double EstimateSeconds(int seeds, int repeats) {
  StalenessEstimate estimate;
  for (int i = 0; i < seeds; ++i) {
    estimate.Add(
        {0, UniformDouble(4, static_cast<std::uint64_t>(i)), UniformDouble(5, static_cast<std::uint64_t>(i)), 0});
  }
  return LeastCpu(Measure(repeats, [&] { estimate.Estimate(); }));
}

void Row(const std::string& what, double seconds) { fmt::print("{:<58}{:>12.3f}\n", what, 1e3 * seconds); }

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  const int repeats = CountArgument(argc, argv, 20);
  std::vector<Arm> many;
  for (int seeds = 1; seeds <= 100; ++seeds) {
    for (int steps = 1; steps <= 100; ++steps) many.push_back({seeds, steps});
  }
  fmt::print("\nplanning, CPU time of one core\n{:<58}{:>12}\n", "", "ms");
  Row("decision, ucb, 25 arms x 400 prompts, 64 slots",
      DecideSeconds(ArmGrid(16, 64, 10), 400, repeats, ArmRule::kUcb));
  Row("decision, thompson, 25 arms x 400 prompts, 64 slots",
      DecideSeconds(ArmGrid(16, 64, 10), 400, repeats, ArmRule::kThompson));
  Row("decision, ucb, 10,000 arms x 1 prompt, 64 slots", DecideSeconds(many, 1, repeats, ArmRule::kUcb));
  Row("selection of 2,500 of 10,000 seeds", SelectSeconds(10'000, repeats, false));
  Row("selection of 2,500 of 10,000 seeds, rewards 0/1", SelectSeconds(10'000, repeats, true));
  Row("selection of 16 of 64 seeds", SelectSeconds(64, repeats, false));
  Row("staleness from 200 control seeds", EstimateSeconds(200, repeats));
  return 0;
}
