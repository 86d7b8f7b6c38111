// Which prompts, seeds and stochastic steps an iteration rolls out. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/request.hpp"
#include "config/config.hpp"
#include "plan/advantage.hpp"
#include "plan/prompt_sampler.hpp"

namespace spotlight {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The seeds of one prompt's group. explored[i] is the reward that exploration saw for seeds[i]; kUnknown: fresh seed.
struct SeedChoice {
  std::vector<std::uint64_t> seeds;
  std::vector<double> explored;
  std::vector<std::uint8_t> control;  // 1: drawn at random from the pool, not for its reward
  double pool_mean = kUnknown;        // of the rewards of all seeds that were tried; kUnknown: none were
  double pool_std = kUnknown;
};

struct IterationPlan {
  std::uint32_t iteration = 0;
  std::vector<int> prompts;        // [P] indices into the training prompts
  std::vector<SeedChoice> groups;  // [P]
  std::uint32_t window_begin = 0, window_end = 0;
};

// A plan with fresh seeds: group/images of each prompt, or explore/seeds with explore/when = critical. Prompts and
// window depend on (run seed, iteration) alone.
IterationPlan PlanIteration(const Config& config, const PromptSampler& sampler, std::uint32_t iteration);

// The seeds to explore for `plan`, all prompts' first seed, then all prompts' second, ...: so that all prompts have
// about equal numbers whenever exploration is cut. real_steps: as in Request.
std::vector<Request> ExploreRequests(const IterationPlan& plan, int seeds, int real_steps,
                                     std::uint64_t weight_version);

// Replaces the plan's seeds by the explored ones of strongest contrast; a prompt with too few scored seeds is filled
// with fresh ones. `explored`: what came back, in any order.
void ChooseSeeds(const Config& config, const std::vector<Sample>& explored, IterationPlan& plan);

// With explore/when = critical: `rollouts` are those of all the plan's seeds, prompt by prompt. Leaves of both those
// that are trained on.
void ChooseRollouts(const Config& config, std::vector<Sample>& rollouts, IterationPlan& plan);

// What advantages of a group are measured by with train/advantage_from = pool. Unknown, so that its own rewards take
// the place, if exploration was cut before it had scored group/images seeds of the prompt.
Moments PoolOf(const Config& config, const SeedChoice& choice);

// The group's rollouts, prompt by prompt.
std::vector<Request> RolloutRequests(const IterationPlan& plan, std::uint64_t weight_version);

}  // namespace spotlight
