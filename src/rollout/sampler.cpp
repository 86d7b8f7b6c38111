#include "rollout/sampler.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/latents.hpp"
#include "kernels/sde_step.hpp"
#include "rollout/schedule.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kEvaluationSeed = 0;

}  // namespace

Sampler::Sampler(const Config& config, const SchedulerConfig& scheduler, const std::shared_ptr<const DitLayout>& layout,
                 TextCondition negative)
    : config_(config),
      scheduler_(scheduler),
      velocity_(layout, config.sampler.guidance, std::move(negative), false),
      image_shape_{1, config.sampler.height / 16, config.sampler.width / 16},
      latent_size_(image_shape_.tokens() * layout->config().in_channels) {}

int Sampler::StepsOf(RequestKind kind) const {
  return kind == RequestKind::kEvaluate ? config_.eval.steps : config_.sampler.steps;
}

std::vector<Denoised> Sampler::Denoise(Parameters& parameters, const std::vector<Request>& requests,
                                       const ConditionedPrompts& prompts, SequenceGroup* group,
                                       const std::vector<DenoiseState>& states, StepBorder* border) {
  const Request& first = requests[0];
  std::vector<const TextCondition*> conditions;
  for (const Request& request : requests) {
    SPOTLIGHT_REQUIRE(request.kind == first.kind && request.window_begin == first.window_begin &&
                          request.window_end == first.window_end,
                      "a batch has one kind and one window");
    SPOTLIGHT_REQUIRE(request.prompt_index < prompts.prompts.size(), "no such prompt");
    conditions.push_back(&prompts.conditions[request.prompt_index]);
    SPOTLIGHT_REQUIRE(conditions.back()->tokens > 0, "a prompt without its condition");
  }
  std::vector<Denoised> results(requests.size());
  const bool evaluate = first.kind == RequestKind::kEvaluate;
  const bool rollout = first.kind == RequestKind::kRollout;
  const int window_begin = evaluate ? 0 : static_cast<int>(first.window_begin);
  const int window_end = evaluate ? 0 : static_cast<int>(first.window_end);
  const std::vector<double> sigmas = ScheduleSigmas(config_.sampler, scheduler_, StepsOf(first.kind));
  const std::vector<StepParameters> steps = ScheduleSteps(config_.sampler, sigmas, window_begin, window_end);
  const Index batch = static_cast<Index>(requests.size()), n = latent_size_;

  // Held-out images keep their noise over all runs, so that scores of two runs differ by their weights alone.
  const std::uint64_t run_seed = evaluate ? kEvaluationSeed : config_.run.seed;
  const auto keys = [&](int step) {
    std::vector<std::uint64_t> stream(requests.size());
    for (std::size_t b = 0; b < requests.size(); ++b) {
      const Request& request = requests[b];
      stream[b] = NoiseKey(run_seed, prompts.prompts[request.prompt_index].id, request.seed, step);
    }
    return stream;
  };
  const auto keep_latents = [&](const Buffer& x) {
    std::vector<float> host(static_cast<std::size_t>(batch * n));
    x.CopyToHost(host);
    for (std::size_t b = 0; b < requests.size(); ++b) {
      const auto row = host.begin() + static_cast<Index>(b) * n;
      std::vector<float>& trajectory = results[b].trajectory;
      trajectory.insert(trajectory.end(), row, row + n);
    }
  };

  for (Buffer* buffer : {&x_, &x_next_, &v_, &z_}) buffer->Resize(batch * n);
  log_prob_.Resize(batch);
  int done = 0;  // steps
  if (states.empty()) {
    NormalNoise(batch, n, keys(-1).data(), x_.data());
  } else {
    SPOTLIGHT_REQUIRE(states.size() == requests.size(), "one state a request");
    done = static_cast<int>(states[0].steps);
    std::vector<float> latents;
    for (std::size_t b = 0; b < requests.size(); ++b) {
      const DenoiseState& state = states[b];
      SPOTLIGHT_REQUIRE(static_cast<int>(state.steps) == done && std::ssize(state.latents) == n,
                        "a batch is at one step");
      latents.insert(latents.end(), state.latents.begin(), state.latents.end());
      results[b].trajectory = state.trajectory;
      results[b].log_probs = state.log_probs;
    }
    x_.CopyFromHost(latents);
  }
  const auto read_states = [&] {
    std::vector<float> host(static_cast<std::size_t>(batch * n));
    x_.CopyToHost(host);
    std::vector<DenoiseState> now(requests.size());
    for (std::size_t b = 0; b < requests.size(); ++b) {
      const auto row = host.begin() + static_cast<Index>(b) * n;
      now[b] = {static_cast<std::uint32_t>(done), {row, row + n}, results[b].trajectory, results[b].log_probs};
    }
    return now;
  };
  VelocityInput input{.image_shape = image_shape_, .level_index = std::vector<int>(requests.size(), 0)};
  velocity_.SetTexts(parameters, conditions, true, group);

  const int count = static_cast<int>(steps.size());
  for (int i = 0; rollout && i < std::min(done, window_end); ++i) {
    if (i < window_begin) continue;
    for (Denoised& result : results) result.steps.push_back(steps[static_cast<std::size_t>(i)].Rounded());
  }
  for (int i = done; i < count; ++i) {
    const StepCoefficients step = steps[static_cast<std::size_t>(i)].Rounded();
    const std::vector<StepCoefficients> coefficients(requests.size(), step);
    const bool stochastic = i >= window_begin && i < window_end;
    input.latents = x_.data();
    input.levels = {step.sigma};
    velocity_.Forward(parameters, input, false, v_.data());
    if (stochastic) NormalNoise(batch, n, keys(i).data(), z_.data());
    SdeStep(batch, n, coefficients.data(), x_.data(), v_.data(), stochastic ? z_.data() : nullptr, x_next_.data());
    if (stochastic && rollout) {
      // Scored from the stored latents, exactly as training will score them.
      LogProb(batch, n, coefficients.data(), x_.data(), v_.data(), x_next_.data(), log_prob_.data());
      std::vector<float> host(requests.size());
      log_prob_.CopyToHost(host);
      for (std::size_t b = 0; b < requests.size(); ++b) {
        results[b].log_probs.push_back(host[b]);
        results[b].steps.push_back(step);
      }
      keep_latents(x_);
      if (i + 1 == window_end) keep_latents(x_next_);
    }
    std::swap(x_, x_next_);
    done = i + 1;
    if (border != nullptr && done < count) border->At(done, read_states);
  }
  std::vector<float> host(static_cast<std::size_t>(batch * n));
  x_.CopyToHost(host);
  for (std::size_t b = 0; b < requests.size(); ++b) {
    const auto row = host.begin() + static_cast<Index>(b) * n;
    results[b].latents.assign(row, row + n);
  }
  return results;
}

}  // namespace spotlight
