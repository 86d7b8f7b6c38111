#include "plan/iteration_plan.hpp"

#include <limits>
#include <map>

#include "plan/selection.hpp"
#include "plan/window.hpp"

namespace spotlight {

IterationPlan PlanIteration(const Config& config, const PromptSampler& sampler, std::uint32_t iteration) {
  IterationPlan plan{.iteration = iteration};
  plan.prompts = sampler.Draw(iteration, config.group.prompts);
  const int begin =
      DrawWindowStart(config.run.seed, iteration, config.sampler.window_first, config.sampler.window_last);
  plan.window_begin = static_cast<std::uint32_t>(begin);
  plan.window_end = static_cast<std::uint32_t>(begin + config.sampler.window_size);
  SeedChoice fresh;
  for (int i = 0; i < config.group.images; ++i) {
    fresh.seeds.push_back(SeedName(iteration, static_cast<std::uint32_t>(i)));
    fresh.explored.push_back(std::numeric_limits<double>::quiet_NaN());
  }
  plan.groups.assign(plan.prompts.size(), fresh);
  return plan;
}

std::vector<Request> ExploreRequests(const Config& config, const IterationPlan& plan, std::uint64_t weight_version) {
  std::vector<Request> requests;
  for (int i = 0; i < config.explore.seeds; ++i) {
    for (const int prompt : plan.prompts) {
      requests.push_back({.kind = RequestKind::kExplore,
                          .iteration = plan.iteration,
                          .prompt_index = static_cast<std::uint32_t>(prompt),
                          .seed = SeedName(plan.iteration, static_cast<std::uint32_t>(i)),
                          .weight_version = weight_version,
                          .window_begin = plan.window_begin,
                          .window_end = plan.window_end});
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
    SeedChoice choice;
    for (const int index : SelectSeeds(values, config.group.images, config.explore.select)) {
      choice.seeds.push_back(seeds[static_cast<std::size_t>(index)]);
      choice.explored.push_back(values[static_cast<std::size_t>(index)]);
    }
    for (int i = 0; static_cast<int>(choice.seeds.size()) < config.group.images; ++i) {
      choice.seeds.push_back(SeedName(plan.iteration, static_cast<std::uint32_t>(config.explore.seeds + i)));
      choice.explored.push_back(std::numeric_limits<double>::quiet_NaN());
    }
    plan.groups[p] = std::move(choice);
  }
}

std::vector<Request> RolloutRequests(const IterationPlan& plan, std::uint64_t weight_version) {
  std::vector<Request> requests;
  for (std::size_t p = 0; p < plan.prompts.size(); ++p) {
    for (const std::uint64_t seed : plan.groups[p].seeds) {
      requests.push_back({.kind = RequestKind::kRollout,
                          .iteration = plan.iteration,
                          .prompt_index = static_cast<std::uint32_t>(plan.prompts[p]),
                          .seed = seed,
                          .weight_version = weight_version,
                          .window_begin = plan.window_begin,
                          .window_end = plan.window_end});
    }
  }
  return requests;
}

}  // namespace spotlight
