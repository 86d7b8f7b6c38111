#include "rollout/schedule.hpp"

#include <cmath>
#include <numbers>

#include "base/error.hpp"

namespace spotlight {
namespace {

// Adds the Gaussian log-probability of standard deviation tau.
StepParameters WithGaussian(StepParameters step) {
  step.log_prob_scale = 1.0 / (2.0 * step.tau * step.tau);
  step.log_prob_constant = -std::log(step.tau) - 0.5 * std::log(2.0 * std::numbers::pi);
  return step;
}

// A Flow-SDE step of diffusion s.
StepParameters Diffusion(double sigma, double sigma_next, double s) {
  const double dt = sigma_next - sigma;
  StepParameters step{.sigma = sigma};
  step.c_x = 1.0 + s * s / (2.0 * sigma) * dt;
  step.c_v = (1.0 + s * s * (1.0 - sigma) / (2.0 * sigma)) * dt;
  step.tau = s * std::sqrt(-dt);
  return WithGaussian(step);
}

}  // namespace

StepCoefficients StepParameters::Rounded() const {
  return {static_cast<float>(sigma),
          static_cast<float>(c_x),
          static_cast<float>(c_v),
          static_cast<float>(tau),
          static_cast<float>(log_prob_scale),
          static_cast<float>(log_prob_constant)};
}

std::vector<double> LinearSigmas(int steps) {
  std::vector<double> sigmas;
  for (int i = steps; i >= 0; --i) sigmas.push_back(static_cast<double>(i) / steps);
  return sigmas;
}

double DynamicShiftMu(const SchedulerConfig& config, Index image_tokens) {
  const double slope = (config.max_shift - config.base_shift) / (config.max_image_seq_len - config.base_image_seq_len);
  return config.base_shift + slope * static_cast<double>(image_tokens - config.base_image_seq_len);
}

std::vector<double> QwenSigmas(const SchedulerConfig& config, int steps, Index image_tokens) {
  SPOTLIGHT_REQUIRE(steps >= 2, "one step divides zero by zero in the terminal stretch");
  std::vector<double> sigmas;
  for (int i = 0; i < steps; ++i) {
    double s = 1.0 + (1.0 / steps - 1.0) * i / (steps - 1);  // linspace(1, 1/steps, steps)
    if (config.use_dynamic_shifting) {
      const double shift = std::exp(DynamicShiftMu(config, image_tokens));
      s = shift / (shift + (1.0 / s - 1.0));
    } else {
      s = config.shift * s / (1.0 + (config.shift - 1.0) * s);
    }
    sigmas.push_back(s);
  }
  if (config.shift_terminal > 0) {
    const double stretch = (1.0 - sigmas.back()) / (1.0 - config.shift_terminal);
    for (double& s : sigmas) s = 1.0 - (1.0 - s) / stretch;
  }
  sigmas.push_back(0.0);
  return sigmas;
}

StepParameters OdeStep(double sigma, double sigma_next) {
  return {.sigma = sigma, .c_x = 1, .c_v = sigma_next - sigma};
}

StepParameters FlowSdeStep(double sigma, double sigma_next, double sigma_second, double noise_level) {
  // A tolerance, since a schedule computed in fp32 may start a rounding away from 1.
  const double bounded = sigma > 1.0 - 1e-6 ? sigma_second : sigma;
  return Diffusion(sigma, sigma_next, noise_level * std::sqrt(sigma / (1.0 - bounded)));
}

StepParameters DanceSdeStep(double sigma, double sigma_next, double noise_level) {
  return Diffusion(sigma, sigma_next, noise_level);
}

StepParameters CpsStep(double sigma, double sigma_next, double noise_level) {
  StepParameters step{.sigma = sigma};
  step.tau = sigma_next * std::sin(noise_level * std::numbers::pi / 2.0);
  const double image = 1.0 - sigma_next;                                          // weight of x - sigma v
  const double noise = std::sqrt(sigma_next * sigma_next - step.tau * step.tau);  // weight of x + (1 - sigma) v
  step.c_x = image + noise;
  step.c_v = -sigma * image + (1.0 - sigma) * noise;
  step.log_prob_scale = 1.0;
  return step;
}

std::vector<double> ScheduleSigmas(const SamplerConfig& sampler, const SchedulerConfig& scheduler, int steps) {
  if (sampler.schedule == SamplerConfig::Schedule::kLinear) return LinearSigmas(steps);
  return QwenSigmas(scheduler, steps, Index{1} * (sampler.height / 16) * (sampler.width / 16));
}

std::vector<float> NetworkSigmas(const Config& config, const SchedulerConfig& scheduler) {
  std::vector<float> levels;
  for (const int steps : {config.sampler.steps, config.eval.steps}) {
    const std::vector<double> sigmas = ScheduleSigmas(config.sampler, scheduler, steps);
    for (int i = 0; i < steps; ++i) levels.push_back(static_cast<float>(sigmas[static_cast<std::size_t>(i)]));
  }
  return levels;
}

std::vector<StepParameters> ScheduleSteps(const SamplerConfig& sampler, const std::vector<double>& sigmas,
                                          int window_begin, int window_end) {
  std::vector<StepParameters> steps;
  for (int i = 0; i + 1 < static_cast<int>(sigmas.size()); ++i) {
    const double sigma = sigmas[static_cast<std::size_t>(i)], next = sigmas[static_cast<std::size_t>(i) + 1];
    if (i < window_begin || i >= window_end) {
      steps.push_back(OdeStep(sigma, next));
    } else if (sampler.noise == SamplerConfig::Noise::kFlow) {
      steps.push_back(FlowSdeStep(sigma, next, sigmas[1], sampler.noise_level));
    } else if (sampler.noise == SamplerConfig::Noise::kDance) {
      steps.push_back(DanceSdeStep(sigma, next, sampler.noise_level));
    } else {
      steps.push_back(CpsStep(sigma, next, sampler.noise_level));
    }
  }
  return steps;
}

}  // namespace spotlight
