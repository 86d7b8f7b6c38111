#include "rollout/sampler.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/latents.hpp"
#include "kernels/sde_step.hpp"
#include "rollout/schedule.hpp"
#include "rollout/skip_schedule.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kEvaluationSeed = 0;

using Compute = StepCache::Compute;

StepCache::Settings CacheSettings(const ExploreConfig& explore) {
  StepCache::Settings settings{.threshold = explore.cache_threshold};
  if (explore.cache == ExploreConfig::Cache::kTea) settings.gate = StepCache::Gate::kInput;
  if (explore.cache == ExploreConfig::Cache::kFirstBlock) settings.gate = StepCache::Gate::kFirstBlock;
  SPOTLIGHT_REQUIRE(explore.cache_polynomial.size() == settings.polynomial.size(), "a polynomial of degree 4");
  std::copy(explore.cache_polynomial.begin(), explore.cache_polynomial.end(), settings.polynomial.begin());
  return settings;
}

// [steps] how each step of such requests uses the cache; empty: it is not used.
std::vector<Compute> PlanReuse(const ExploreConfig& explore, const Request& request, int steps) {
  if (request.kind != RequestKind::kExplore) return {};
  const auto count = static_cast<std::size_t>(steps);
  if (explore.cache != ExploreConfig::Cache::kSteps) {
    std::vector<Compute> plan(count, Compute::kGated);
    plan.front() = Compute::kAll;
    if (explore.cache == ExploreConfig::Cache::kTea) plan.back() = Compute::kAll;
    return plan;
  }
  if (request.real_steps == 0 || request.real_steps >= count) return {};
  std::vector<Compute> plan;
  for (const bool real : SkipSchedule(steps, static_cast<int>(request.real_steps))) {
    plan.push_back(real ? Compute::kAll : Compute::kNobody);
  }
  return plan;
}

}  // namespace

Sampler::Sampler(const Config& config, const SchedulerConfig& scheduler, const std::shared_ptr<const DitLayout>& layout,
                 TextCondition negative)
    : config_(config),
      scheduler_(scheduler),
      velocity_(layout, config.sampler.guidance, std::move(negative), false, config.model.ActivationType()),
      image_shape_{1, config.sampler.height / 16, config.sampler.width / 16},
      latent_size_(image_shape_.tokens() * layout->config().in_channels),
      cache_(CacheSettings(config.explore)) {}

// One pass of the network.
void Sampler::Pass(Parameters& parameters, const VelocityInput& input, TimedPass& pass) {
  if (pass.timer == nullptr) pass.timer = MakeLaunchTimer();
  const bool cached = input.reuse.cache != nullptr && input.reuse.compute == Compute::kNobody;
  const Phase phase(cached ? "cached pass" : "real pass");
  pass.timer->Start();
  velocity_.Forward(parameters, input, false, v_.data());
  pass.timer->Stop();
  pass.cached = input.reuse.cache != nullptr && cache_.reused_all();
  pass.under_way = true;
}

// Waits until the pass has run.
void Sampler::AddTime(TimedPass& pass) {
  if (!pass.under_way) return;
  (pass.cached ? times_.cached_seconds : times_.real_seconds) += pass.timer->Seconds();
  ++(pass.cached ? times_.cached_passes : times_.real_passes);
  pass.under_way = false;
}

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
                          request.window_end == first.window_end && request.real_steps == first.real_steps,
                      "a batch has one kind, one window and one number of real steps");
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
  const int count = static_cast<int>(steps.size());
  const std::vector<Compute> reuse = PlanReuse(config_.explore, first, count);
  // What the cache holds is not kept: a batch can start only where nothing is reused.
  const auto can_start = [&](int step) {
    if (reuse.empty() || step == 0) return true;
    return cache_.gate() == StepCache::Gate::kNone && reuse[static_cast<std::size_t>(step)] == Compute::kAll;
  };
  times_ = {.degree = group == nullptr ? 1 : static_cast<std::uint32_t>(group->size()),
            .requests = static_cast<std::uint32_t>(requests.size())};
  for (Buffer* buffer : {&x_, &x_next_, &v_, &z_}) buffer->Resize(batch * n);
  log_prob_.Resize(batch);
  for (TimedPass& pass : passes_) pass.under_way = false;
  int done = 0;  // steps
  if (states.empty()) {
    NormalNoise(batch, n, keys(-1).data(), x_.data());
  } else {
    SPOTLIGHT_REQUIRE(states.size() == requests.size(), "one state a request");
    done = static_cast<int>(states[0].steps);
    SPOTLIGHT_REQUIRE(can_start(done), "a state of a step that needs what an earlier one has left");
    std::vector<float> latents;
    for (std::size_t b = 0; b < requests.size(); ++b) {
      const DenoiseState& state = states[b];
      SPOTLIGHT_REQUIRE(static_cast<int>(state.steps) == done && std::ssize(state.latents) == n,
                        "a batch is at one step");
      latents.insert(latents.end(), state.latents.begin(), state.latents.end());
    }
    x_.CopyFromHost(latents);
  }
  kept_.Begin(batch, n, rollout ? window_end - window_begin : 0, states);
  VelocityInput input{.image_shape = image_shape_, .level_index = std::vector<int>(requests.size(), 0)};
  velocity_.SetTexts(parameters, conditions, true, group);
  if (!reuse.empty()) {
    input.reuse.cache = &cache_;
    cache_.Start(velocity_.samples(batch));
  }

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
    if (!reuse.empty()) input.reuse.compute = reuse[static_cast<std::size_t>(i)];
    TimedPass& pass = passes_[static_cast<std::size_t>(i) % passes_.size()];
    Pass(parameters, input, pass);
    if (stochastic) NormalNoise(batch, n, keys(i).data(), z_.data());
    SdeStep(batch, n, coefficients.data(), x_.data(), v_.data(), stochastic ? z_.data() : nullptr, x_next_.data());
    if (stochastic && rollout) {
      // Scored from the stored latents, exactly as training will score them.
      LogProb(batch, n, coefficients.data(), x_.data(), v_.data(), x_next_.data(), log_prob_.data());
      kept_.KeepLogProbs(log_prob_);
      for (Denoised& result : results) result.steps.push_back(step);
      kept_.KeepLatents(x_);
      if (i + 1 == window_end) kept_.KeepLatents(x_next_);
    }
    std::swap(x_, x_next_);
    done = i + 1;
    AddTime(passes_[static_cast<std::size_t>(done) % passes_.size()]);  // of the step before: no more than one ahead
    if (pass.timer->Done()) AddTime(pass);
    if (border != nullptr && done < count) {
      kept_.AtBorder(static_cast<std::uint32_t>(done), x_);
      border->At(done, can_start(done) ? &kept_ : nullptr);
    }
  }
  for (TimedPass& pass : passes_) AddTime(pass);
  std::vector<float> host(static_cast<std::size_t>(batch * n));
  x_.CopyToHost(host);
  for (std::size_t b = 0; b < requests.size(); ++b) {
    const auto row = host.begin() + static_cast<Index>(b) * n;
    results[b].latents.assign(row, row + n);
    results[b].trajectory = kept_.Trajectory(b);
    results[b].log_probs = kept_.LogProbs(b);
  }
  return results;
}

}  // namespace spotlight
