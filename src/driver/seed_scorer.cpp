#include "driver/seed_scorer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "driver/signals.hpp"
#include "plan/prompt_sampler.hpp"
#include "plan/window.hpp"

namespace spotlight {
namespace {

// Steps are counted whatever the run's own cache does, and all are computed where a setting says so.
Config WithCountedSteps(Config config) {
  config.explore.cache = ExploreConfig::Cache::kSteps;
  return config;
}

TextCondition Negative(const Config& config, const Resources& resources) {
  if (config.sampler.guidance <= 1) return {};
  return resources.text->Embed(config.sampler.negative_prompt);
}

}  // namespace

SeedScorer::SeedScorer(const Config& config, const Resources& resources, std::uint32_t iteration)
    : config_(WithCountedSteps(config)),
      resources_(resources),
      iteration_(iteration),
      prompts_(WithoutConditions(resources.train)),
      sampler_(config_, resources.model.scheduler, resources.model.layout, Negative(config, resources)) {
  const PromptSampler sampler(prompts_.prompts, config.prompts.tag_weights, config.run.seed);
  if (config.study.prompts > sampler.drawable()) {
    throw UserError(fmt::format("study/prompts = {}, but only {} different ones can be drawn; lower it",
                                config.study.prompts, sampler.drawable()));
  }
  drawn_ = sampler.Draw(iteration, config.study.prompts);
  for (const int prompt : drawn_) {
    const auto index = static_cast<std::size_t>(prompt);
    prompts_.conditions[index] = resources.text->Embed(prompts_.prompts[index].text);
  }
}

// Prompt by prompt.
std::vector<Request> SeedScorer::Requests(const StudySetting& setting) const {
  const int window =
      DrawWindowStart(config_.run.seed, iteration_, config_.sampler.window_first, config_.sampler.window_last);
  std::vector<Request> requests;
  for (const int prompt : drawn_) {
    for (const std::uint64_t seed : setting.seeds) {
      requests.push_back({.kind = RequestKind::kExplore,
                          .iteration = iteration_,
                          .prompt_index = static_cast<std::uint32_t>(prompt),
                          .seed = seed,
                          .weight_version = setting.weight_version,
                          .window_begin = static_cast<std::uint32_t>(window),
                          .window_end = static_cast<std::uint32_t>(window + config_.sampler.window_size),
                          .real_steps = static_cast<std::uint32_t>(setting.real_steps)});
    }
  }
  return requests;
}

bool SeedScorer::Score(Parameters& parameters, StudySetting& setting) {
  const std::vector<Request> requests = Requests(setting);
  const std::size_t batch_size = static_cast<std::size_t>(config_.sampler.batch), seeds = setting.seeds.size();
  const ImageShape shape = sampler_.image_shape();
  std::vector<double> seconds;  // of a seed, by batches
  setting.rewards.assign(drawn_.size(), {});
  for (std::size_t from = 0; from < requests.size(); from += batch_size) {
    if (!StopSignal().empty()) return false;
    const auto start = std::chrono::steady_clock::now();
    const std::size_t end = std::min(requests.size(), from + batch_size);
    const std::vector<Denoised> denoised = sampler_.Denoise(
        parameters, {requests.begin() + static_cast<Index>(from), requests.begin() + static_cast<Index>(end)},
        prompts_);
    for (std::size_t i = from; i < end; ++i) {
      const Image image = resources_.model.decoder->Decode(denoised[i - from].latents, shape.height, shape.width);
      const Prompt& prompt = prompts_.prompts[requests[i].prompt_index];
      setting.rewards[i / seeds].push_back(resources_.reward->Score(prompt, image).total);
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    seconds.push_back(taken.count() / static_cast<double>(end - from));
  }
  // The median: the first batch also makes the buffers.
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  setting.seconds = *middle;
  return true;
}

}  // namespace spotlight
