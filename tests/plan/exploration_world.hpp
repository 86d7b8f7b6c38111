// A simulated run with known truth, to measure planners against: what each arm costs and what it earns.
//
// Spreads are square roots of measured variances of the 8 kept seeds' fresh rewards (strict GenEval reward of the small
// model, explored with weights one iteration older and cached steps), a mean over prompts; they drift together, and a
// pull sees them with noise. The optimum is inside the grid: with 16 slots (24, 6), with 8 slots (12, 6).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "plan/exploration_planner.hpp"

namespace spotlight {

struct World {
  static constexpr int kPrompts = 8;
  static constexpr int kImages = 8;
  static constexpr int kSteps = 10;
  static constexpr double kForward = 0.01;  // seconds
  static constexpr double kCached = 0.0005;
  static constexpr double kDecode = 0.002;
  static constexpr double kReward = 0.001;
  static constexpr double kTrain = 0.85;

  std::uint64_t seed = 0;
  int slots = 16;
  double noise = 0.03;  // deviation of the reward of a pull

  // Mean spread before drift. Steps: 3, 4 (between its neighbours), 6, 8, 10; seeds: 8, 12, 16, 24, 32.
  static double Truth(const Arm& arm) {
    constexpr double kVariance[5][5] = {{0.133, 0.140, 0.141, 0.155, 0.158},
                                        {0.132, 0.142, 0.145, 0.159, 0.162},
                                        {0.127, 0.148, 0.160, 0.171, 0.178},
                                        {0.134, 0.155, 0.164, 0.175, 0.186},
                                        {0.133, 0.154, 0.164, 0.177, 0.185}};
    const std::vector<int> steps = {3, 4, 6, 8, 10};
    const std::vector<int> seeds = {8, 12, 16, 24, 32};
    const auto row = std::find(steps.begin(), steps.end(), arm.steps) - steps.begin();
    const auto column = std::find(seeds.begin(), seeds.end(), arm.seeds) - seeds.begin();
    return std::sqrt(kVariance[row][column]);
  }

  double Seconds(const Arm& arm) const {
    const double rounds = std::ceil(static_cast<double>(kPrompts * arm.seeds) / slots);
    return rounds * (arm.steps * kForward + (kSteps - arm.steps) * kCached + kDecode + kReward);
  }

  static double Drift(std::uint32_t iteration) { return 1 + 0.2 * std::sin(iteration / 30.0); }

  double Spread(const Arm& arm, std::uint32_t iteration) const {
    std::vector<float> normal(1);
    FillNormal(StreamKey({seed, iteration}), 0, normal);
    return std::max(0.0, (Truth(arm) + noise * static_cast<double>(normal[0])) * Drift(iteration));
  }

  // Lets the planner decide for `iteration`, see the batches, the training and the outcome. What it chose.
  Arm Play(ExplorationPlanner& planner, std::uint32_t iteration) const {
    const Arm arm = planner.Decide(kPrompts, {{1, slots}}, iteration).chosen;
    if (arm == Arm{}) return arm;
    planner.ObserveBatch({.requests = 1,
                          .real_passes = static_cast<double>(arm.steps),
                          .real_seconds = arm.steps * kForward,
                          .cached_passes = static_cast<double>(kSteps - arm.steps),
                          .cached_seconds = (kSteps - arm.steps) * kCached,
                          .decode_seconds = kDecode,
                          .reward_seconds = kReward});
    const double share = std::min(1.0, kTrain / Seconds(arm));
    const auto wanted = static_cast<std::size_t>(kPrompts * arm.seeds);
    planner.ObserveTraining(kTrain, 0, share < 1);
    planner.Credit({.iteration = iteration,
                    .arm = arm,
                    .wanted = wanted,
                    .scored = static_cast<std::size_t>(share * static_cast<double>(wanted)),
                    .spread = Spread(arm, iteration)});
    return arm;
  }

  // The largest truth of the arms that fit with the least margin.
  double Best(double margin = 0.05) const {
    double best = 0;
    for (const Arm& arm : ArmGrid(kImages, 4 * kImages, kSteps)) {
      if (Seconds(arm) <= (1 - margin) * kTrain) best = std::max(best, Truth(arm));
    }
    return best;
  }
};

inline ExplorationPlanner WorldPlanner(const BanditOptions& bandit, bool dominated = false) {
  return ExplorationPlanner({.bandit = bandit,
                             .arms = ArmGrid(World::kImages, 4 * World::kImages, World::kSteps),
                             .steps = World::kSteps,
                             .dominated = dominated});
}

}  // namespace spotlight
