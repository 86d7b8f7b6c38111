#include <algorithm>
#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

// One expression for the mean wherever it is needed: a log-prob computed again has the same bits.
inline float StepMean(const StepCoefficients& c, float x, float v) { return std::fma(c.c_v, v, c.c_x * x); }

}  // namespace

void SdeStep(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* z, float* x_next) {
  ParallelFor("SdeStep", batch, [=](std::int64_t sample) {
    const StepCoefficients c = coefficients[sample];
    const std::int64_t begin = sample * size;
    const std::int64_t end = begin + size;
    if (c.tau == 0) {
#pragma GCC ivdep  // x_next may be x
      for (std::int64_t i = begin; i < end; ++i) x_next[i] = StepMean(c, x[i], v[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) x_next[i] = std::fma(c.tau, z[i], StepMean(c, x[i], v[i]));
    }
  });
}

void LogProb(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* x_next, float* log_prob) {
  ParallelFor("LogProb", batch, [=](std::int64_t sample) {
    const StepCoefficients c = coefficients[sample];
    const float* from = x + sample * size;
    const float* velocity = v + sample * size;
    const float* to = x_next + sample * size;
    const auto sum = LaneSum<double>(size, [=](std::int64_t i) {
      const float rest = to[i] - StepMean(c, from[i], velocity[i]);
      return static_cast<double>(rest * rest);
    });
    const double mean_square = sum / static_cast<double>(size);
    log_prob[sample] = static_cast<float>(c.log_prob_constant - c.log_prob_scale * mean_square);
  });
}

void LogProbBackward(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
                     const float* v, const float* x_next, const float* v_reference, const float* dlog_prob,
                     const float* dkl, float* dv) {
  ParallelFor("LogProbBackward", batch, [=](std::int64_t sample) {
    const StepCoefficients c = coefficients[sample];
    const std::int64_t begin = sample * size;
    const std::int64_t end = begin + size;
    const double common = 2.0 * c.log_prob_scale * c.c_v / static_cast<double>(size);
    const auto factor = static_cast<float>(dlog_prob[sample] * common);
    for (std::int64_t i = begin; i < end; ++i) dv[i] = factor * (x_next[i] - StepMean(c, x[i], v[i]));
    if (v_reference == nullptr) return;
    const auto kl_factor = static_cast<float>(dkl[sample] * common * c.c_v);
    for (std::int64_t i = begin; i < end; ++i) dv[i] = std::fma(kl_factor, v[i] - v_reference[i], dv[i]);
  });
}

void StepKl(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* v,
            const float* v_reference, float* kl) {
  ParallelFor("StepKl", batch, [=](std::int64_t sample) {
    const StepCoefficients c = coefficients[sample];
    const float* velocity = v + sample * size;
    const float* reference = v_reference + sample * size;
    const auto sum = LaneSum<double>(size, [=](std::int64_t i) {
      const float rest = c.c_v * (velocity[i] - reference[i]);
      return static_cast<double>(rest * rest);
    });
    kl[sample] = static_cast<float>(c.log_prob_scale * sum / static_cast<double>(size));
  });
}

}  // namespace spotlight::kokkos
