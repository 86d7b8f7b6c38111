#include "plan/iteration_plan.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/random.hpp"
#include "plan/selection.hpp"
#include "plan/window.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kControlStream = 0x636f6e74726f6cULL;

// The seeds of a prompt that are kept out of a pool whose rewards are known; fewer than group/images if too few are
// scored. which: of the plan's prompts. places: receives each kept seed's place in the pool.
SeedChoice Select(const Config& config, const IterationPlan& plan, std::size_t which,
                  const std::vector<std::uint64_t>& seeds, const std::vector<double>& rewards,
                  std::vector<int>* places = nullptr) {
  const std::uint64_t key = StreamKey({kControlStream, config.run.seed, plan.iteration, which});
  const ControlledSeeds selected =
      SelectSeedsWithControl(rewards, config.group.images, config.explore.select, config.explore.control, key);
  const Moments pool = MomentsOf(rewards);
  SeedChoice choice{.pool_mean = pool.mean, .pool_std = pool.std};
  for (std::size_t i = 0; i < selected.kept.size(); ++i) {
    const std::size_t place = static_cast<std::size_t>(selected.kept[i]);
    choice.seeds.push_back(seeds[place]);
    choice.explored.push_back(rewards[place]);
    choice.control.push_back(selected.control[i]);
  }
  if (places != nullptr) *places = selected.kept;
  return choice;
}

void AddFresh(SeedChoice& choice, std::uint64_t seed) {
  choice.seeds.push_back(seed);
  choice.explored.push_back(kUnknown);
  choice.control.push_back(0);
}

Request RequestOf(RequestKind kind, const IterationPlan& plan, int prompt, std::uint64_t seed,
                  std::uint64_t weight_version) {
  return {.kind = kind,
          .iteration = plan.iteration,
          .prompt_index = static_cast<std::uint32_t>(prompt),
          .seed = seed,
          .weight_version = weight_version,
          .window_begin = plan.window_begin,
          .window_end = plan.window_end};
}

}  // namespace

IterationPlan PlanIteration(const Config& config, const PromptSampler& sampler, std::uint32_t iteration) {
  IterationPlan plan{.iteration = iteration};
  plan.prompts = sampler.Draw(iteration, config.group.prompts);
  const int begin =
      DrawWindowStart(config.run.seed, iteration, config.sampler.window_first, config.sampler.window_last);
  plan.window_begin = static_cast<std::uint32_t>(begin);
  plan.window_end = static_cast<std::uint32_t>(begin + config.sampler.window_size);
  const bool critical = config.explore.seeds > 0 && config.explore.when == ExploreConfig::When::kCritical;
  SeedChoice fresh;
  for (int i = 0; i < (critical ? config.explore.seeds : config.group.images); ++i) {
    AddFresh(fresh, SeedName(iteration, static_cast<std::uint32_t>(i)));
  }
  plan.groups.assign(plan.prompts.size(), fresh);
  return plan;
}

std::vector<Request> ExploreRequests(const IterationPlan& plan, int seeds, int real_steps,
                                     std::uint64_t weight_version) {
  std::vector<Request> requests;
  for (int i = 0; i < seeds; ++i) {
    for (const int prompt : plan.prompts) {
      requests.push_back(RequestOf(RequestKind::kExplore, plan, prompt,
                                   SeedName(plan.iteration, static_cast<std::uint32_t>(i)), weight_version));
      requests.back().real_steps = static_cast<std::uint32_t>(real_steps);
    }
  }
  return requests;
}

void ChooseSeeds(const Config& config, const std::vector<Sample>& explored, IterationPlan& plan) {
  std::map<int, std::map<std::uint64_t, double>> rewards;  // by prompt and seed: in one order whatever came first
  for (const Sample& sample : explored) {
    rewards[static_cast<int>(sample.request.prompt_index)][sample.request.seed] = sample.reward;
  }
  for (std::size_t p = 0; p < plan.prompts.size(); ++p) {
    std::vector<std::uint64_t> seeds;
    std::vector<double> values;
    for (const auto& [seed, reward] : rewards[plan.prompts[p]]) {
      seeds.push_back(seed);
      values.push_back(reward);
    }
    SeedChoice choice = Select(config, plan, p, seeds, values);
    for (int i = 0; static_cast<int>(choice.seeds.size()) < config.group.images; ++i) {
      AddFresh(choice, SeedName(plan.iteration, static_cast<std::uint32_t>(config.explore.seeds + i)));
    }
    plan.groups[p] = std::move(choice);
  }
}

void ChooseRollouts(const Config& config, std::vector<Sample>& rollouts, IterationPlan& plan) {
  std::vector<Sample> kept;
  std::size_t first = 0;
  for (std::size_t p = 0; p < plan.groups.size(); ++p) {
    const std::vector<std::uint64_t> seeds = plan.groups[p].seeds;
    std::vector<double> rewards;
    for (std::size_t i = 0; i < seeds.size(); ++i) rewards.push_back(rollouts[first + i].reward);
    std::vector<int> places;
    plan.groups[p] = Select(config, plan, p, seeds, rewards, &places);
    for (double& explored : plan.groups[p].explored) explored = kUnknown;  // these rewards are the fresh ones
    // Those that have no reward fill up the group, which is of one size; nobody trains on them.
    for (std::size_t i = 0; static_cast<int>(places.size()) < config.group.images; ++i) {
      if (std::isfinite(rewards[i])) continue;
      places.push_back(static_cast<int>(i));
      AddFresh(plan.groups[p], seeds[i]);
    }
    for (const int place : places) kept.push_back(std::move(rollouts[first + static_cast<std::size_t>(place)]));
    first += seeds.size();
  }
  rollouts = std::move(kept);
}

Moments PoolOf(const Config& config, const SeedChoice& choice) {
  const bool critical = config.explore.when == ExploreConfig::When::kCritical;  // fresh rewards, and all of them
  const bool filled =
      std::any_of(choice.explored.begin(), choice.explored.end(), [](double r) { return std::isnan(r); });
  if (filled && !critical) return {};
  return {choice.pool_mean, choice.pool_std};
}

std::vector<Request> RolloutRequests(const IterationPlan& plan, std::uint64_t weight_version) {
  std::vector<Request> requests;
  for (std::size_t p = 0; p < plan.prompts.size(); ++p) {
    for (const std::uint64_t seed : plan.groups[p].seeds) {
      requests.push_back(RequestOf(RequestKind::kRollout, plan, plan.prompts[p], seed, weight_version));
    }
  }
  return requests;
}

}  // namespace spotlight
