// Noise schedules and the denoising steps' coefficients, in double.
//
// sigma runs from 1 (noise) to 0 (image); x = (1 - sigma) image + sigma noise, v = noise - image.
#pragma once

#include <vector>

#include "base/scheduler_config.hpp"
#include "base/step_coefficients.hpp"
#include "base/tensor.hpp"
#include "config/config.hpp"

namespace spotlight {

// [steps + 1]: 1, (steps - 1)/steps, ..., 1/steps, 0.
std::vector<double> LinearSigmas(int steps);

// [steps + 1] of FlowMatchEulerDiscreteScheduler with dynamic exponential shift and terminal stretch
// (diffusers 0.42; at most 1.2e-7 from its fp32 numbers). image_tokens = (H/16)(W/16). steps >= 2.
std::vector<double> QwenSigmas(const SchedulerConfig& config, int steps, Index image_tokens);

// exp(mu) is the shift of QwenSigmas.
double DynamicShiftMu(const SchedulerConfig& config, Index image_tokens);

// One step sigma -> sigma_next: mean = c_x x + c_v v, standard deviation tau, and the log-probability
//   mean over elements of -log_prob_scale (x' - mean)^2 + log_prob_constant.
struct StepParameters {
  double sigma = 0, c_x = 1, c_v = 0, tau = 0, log_prob_scale = 0, log_prob_constant = 0;
  StepCoefficients Rounded() const;  // to fp32, for the kernels
};

StepParameters OdeStep(double sigma, double sigma_next);
// Flow-SDE (Flow-GRPO, arXiv 2505.05470): s = a sqrt(sigma / (1 - sigma^)), sigma^ = sigma_second (the
// schedule's second sigma) where sigma is 1, else sigma.
StepParameters FlowSdeStep(double sigma, double sigma_next, double sigma_second, double noise_level);
// Dance-SDE (DanceGRPO, arXiv 2505.07818): constant s = noise_level.
StepParameters DanceSdeStep(double sigma, double sigma_next, double noise_level);
// Coefficients-preserving sampling (Flow-CPS, arXiv 2509.05952): tau = sigma' sin(a pi/2); its
// log-probability drops the constants and the 1/(2 tau^2), so its ratios live on another scale.
StepParameters CpsStep(double sigma, double sigma_next, double noise_level);

// The sigmas that the input asks for.
std::vector<double> ScheduleSigmas(const SamplerConfig& sampler, const SchedulerConfig& scheduler, int steps);

// Every sigma that the network sees in rollouts and evaluations of a run, as it sees it: for the modulation table.
std::vector<float> NetworkSigmas(const Config& config, const SchedulerConfig& scheduler);

// One StepParameters a step: stochastic in [window_begin, window_end), ODE elsewhere.
std::vector<StepParameters> ScheduleSteps(const SamplerConfig& sampler, const std::vector<double>& sigmas,
                                          int window_begin, int window_end);

}  // namespace spotlight
