// One denoising step and its log-probability (base/step_coefficients.hpp has the equation). The coefficients (Flow-SDE,
// Dance-SDE, CPS, ODE) are computed in double by rollout/schedule. tau = 0 is the ODE step: no noise, no
// log-probability.
#pragma once

#include <cstdint>

#include "base/step_coefficients.hpp"

namespace spotlight {

// x, v, z, x_next: [B, n]; coefficients: [B], one a sample. z may be null where every tau is 0.
void SdeStep(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* z, float* x_next);

// log_prob [B] of x_next given (x, v). Deterministic order; fp32 terms, double sum.
void LogProb(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* x_next, float* log_prob);

// dv [B, n] = dlog_prob[b] * d log_prob / dv with x_next held fixed, plus
// dkl[b] * d KL / dv where KL = mean((c_v (v - v_reference))^2) * log_prob_scale (v_reference null: no KL).
void LogProbBackward(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
                     const float* v, const float* x_next, const float* v_reference, const float* dlog_prob,
                     const float* dkl, float* dv);

// kl [B] = mean over elements of (c_v (v - v_reference))^2 * log_prob_scale: the Gaussian KL of the two
// step distributions (variance tau^2).
void StepKl(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* v,
            const float* v_reference, float* kl);

}  // namespace spotlight
