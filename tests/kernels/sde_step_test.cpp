#include "kernels/sde_step.hpp"

#include <gtest/gtest.h>

#include <numbers>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

// Flow-SDE step as linear coefficients, in double from the equations of Flow-GRPO (arXiv 2505.05470); the
// diffusion s is the caller's, so Dance-SDE is the case s = eta.
StepCoefficients FlowSde(double sigma, double sigma_next, double s) {
  const double d = sigma_next - sigma;
  const double tau = s * std::sqrt(-d);
  return {.sigma = static_cast<float>(sigma),
          .c_x = static_cast<float>(1 + s * s / (2 * sigma) * d),
          .c_v = static_cast<float>((1 + s * s * (1 - sigma) / (2 * sigma)) * d),
          .tau = static_cast<float>(tau),
          .log_prob_scale = static_cast<float>(1 / (2 * tau * tau)),
          .log_prob_constant = static_cast<float>(-std::log(tau) - std::log(2 * std::numbers::pi) / 2)};
}

// Coefficient-preserving sampling (arXiv 2509.05952): x0 = x - sigma v and x1 = x + (1 - sigma) v are mixed.
StepCoefficients Cps(double sigma, double sigma_next, double a) {
  const double tau = sigma_next * std::sin(a * std::numbers::pi / 2);
  const double noise = std::sqrt(sigma_next * sigma_next - tau * tau);
  return {.sigma = static_cast<float>(sigma),
          .c_x = static_cast<float>(1 - sigma_next + noise),
          .c_v = static_cast<float>(-(1 - sigma_next) * sigma + noise * (1 - sigma)),
          .tau = static_cast<float>(tau),
          .log_prob_scale = 1,
          .log_prob_constant = 0};
}

struct Golden {
  StepCoefficients coefficients;
  double x_next, log_prob;
};

// x = 0.3, v = -0.2, z = 0.5, sigma 0.6 -> 0.5 unless said otherwise; values computed in float64.
TEST(SdeStep, GoldenValues) {
  const double first = 0.928970;
  const Golden goldens[] = {
      {FlowSde(0.6, 0.5, 0.7 * std::sqrt(0.6 / 0.4)), 0.442079417, 0.261296403},
      {FlowSde(1.0, first, 1.2 * std::sqrt(1 / (1 - first))), 0.698206000, -1.226260090},
      {FlowSde(0.6, 0.5, 0.3), 0.365784165, 1.311326818},
      {Cps(0.6, 0.5, 0.8), 0.481755998, -0.056531781},
  };
  for (const Golden& golden : goldens) {
    const Floats x{0.3f}, v{-0.2f}, z{0.5f};
    Floats x_next(1), log_prob(1);
    SdeStep(1, 1, &golden.coefficients, x.data(), v.data(), z.data(), x_next.data());
    LogProb(1, 1, &golden.coefficients, x.data(), v.data(), x_next.data(), log_prob.data());
    EXPECT_NEAR(x_next[0], golden.x_next, 1e-6);
    EXPECT_NEAR(log_prob[0], golden.log_prob, 2e-6);
  }
}

TEST(SdeStep, OdeStepNeedsNoNoise) {
  const StepCoefficients ode = {.sigma = 0.6f, .c_x = 1, .c_v = -0.1f, .tau = 0};
  const Floats x = Normals(1, 100), v = Normals(2, 100);
  Floats next(100);
  SdeStep(1, 100, &ode, x.data(), v.data(), nullptr, next.data());
  for (std::size_t i = 0; i < 100; ++i) EXPECT_NEAR(next[i], x[i] - 0.1f * v[i], 2e-7);
}

class Batch : public testing::Test {
 protected:
  static constexpr std::int64_t kBatch = 3;
  static constexpr std::int64_t kSize = 97;
  const StepCoefficients coefficients_[kBatch] = {FlowSde(0.6, 0.5, 0.86), Cps(0.6, 0.5, 0.8), FlowSde(0.9, 0.8, 2)};
  const Floats x_ = Normals(1, kBatch* kSize);
  const Floats v_ = Normals(2, kBatch* kSize);
  const Floats z_ = Normals(3, kBatch* kSize);
  const Floats reference_ = Normals(4, kBatch* kSize);

  // [B] log-probs and divergences in double.
  Doubles LogProbs(const Floats& next, const Doubles& v) const {
    Doubles result(kBatch);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const StepCoefficients& c = coefficients_[i / kSize];
      const double mean = static_cast<double>(c.c_x) * x_[i] + c.c_v * v[i];
      result[i / kSize] -= c.log_prob_scale * (next[i] - mean) * (next[i] - mean) / kSize;
    }
    for (std::size_t b = 0; b < kBatch; ++b) result[b] += coefficients_[b].log_prob_constant;
    return result;
  }
  Doubles Divergences(const Doubles& v) const {
    Doubles result(kBatch);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const StepCoefficients& c = coefficients_[i / kSize];
      result[i / kSize] += c.log_prob_scale * std::pow(c.c_v * (v[i] - reference_[i]), 2) / kSize;
    }
    return result;
  }
};

TEST_F(Batch, LogProbAndKlMatchDouble) {
  Floats next(x_.size()), log_prob(kBatch), kl(kBatch);
  SdeStep(kBatch, kSize, coefficients_, x_.data(), v_.data(), z_.data(), next.data());
  LogProb(kBatch, kSize, coefficients_, x_.data(), v_.data(), next.data(), log_prob.data());
  StepKl(kBatch, kSize, coefficients_, v_.data(), reference_.data(), kl.data());
  ExpectClose(log_prob, LogProbs(next, Widen(v_)), 1e-6);
  ExpectClose(kl, Divergences(Widen(v_)), 1e-6);
}

TEST_F(Batch, BackwardMatchesFiniteDifferences) {
  Floats next(x_.size()), dv(x_.size(), 9.0f);
  SdeStep(kBatch, kSize, coefficients_, x_.data(), v_.data(), z_.data(), next.data());
  const Floats dlog_prob = {50, -80, 120}, dkl = {20, 30, 70};
  LogProbBackward(kBatch, kSize, coefficients_, x_.data(), v_.data(), next.data(), nullptr, dlog_prob.data(), nullptr,
                  dv.data());
  ExpectClose(
      dv, NumericGradient(Widen(v_), [&](const Doubles& v) { return Dot(LogProbs(next, v), Widen(dlog_prob)); }), 5e-6);
  LogProbBackward(kBatch, kSize, coefficients_, x_.data(), v_.data(), next.data(), reference_.data(), dlog_prob.data(),
                  dkl.data(), dv.data());
  ExpectClose(dv,
              NumericGradient(Widen(v_),
                              [&](const Doubles& v) {
                                return Dot(LogProbs(next, v), Widen(dlog_prob)) + Dot(Divergences(v), Widen(dkl));
                              }),
              5e-6);
}

TEST_F(Batch, ASampleDoesNotFeelItsBatch) {
  Floats next(x_.size()), log_prob(kBatch), alone(kSize), alone_log_prob(1);
  SdeStep(kBatch, kSize, coefficients_, x_.data(), v_.data(), z_.data(), next.data());
  LogProb(kBatch, kSize, coefficients_, x_.data(), v_.data(), next.data(), log_prob.data());
  const std::int64_t last = 2 * kSize;
  SdeStep(1, kSize, coefficients_ + 2, x_.data() + last, v_.data() + last, z_.data() + last, alone.data());
  LogProb(1, kSize, coefficients_ + 2, x_.data() + last, v_.data() + last, alone.data(), alone_log_prob.data());
  EXPECT_EQ(alone, Slice(next, last, kSize));
  EXPECT_EQ(alone_log_prob[0], log_prob[2]);
}

}  // namespace
}  // namespace spotlight
