#include "kernels/guidance.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

constexpr std::int64_t kBatch = 2, kTokens = 3;
constexpr float kScale = 4.0f;

// pairs [B, 2, size] -> v [B, size].
Doubles Reference(std::int64_t channels, const Doubles& pairs) {
  const std::int64_t size = kTokens * channels;
  Doubles v(pairs.size() / 2);
  for (std::int64_t row = 0; row < kBatch * kTokens; ++row) {
    const double* cond = pairs.data() + row / kTokens * 2 * size + row % kTokens * channels;
    const double* uncond = cond + size;
    double* guided = v.data() + row * channels;
    double cond_square = 0, guided_square = 0;
    for (std::int64_t j = 0; j < channels; ++j) {
      guided[j] = uncond[j] + kScale * (cond[j] - uncond[j]);
      cond_square += cond[j] * cond[j];
      guided_square += guided[j] * guided[j];
    }
    for (std::int64_t j = 0; j < channels; ++j) guided[j] *= std::sqrt(cond_square / guided_square);
  }
  return v;
}

TEST(Guidance, ForwardAndBackwardMatchDouble) {
  for (const std::int64_t channels : {2, 3, 17, 24, 64, 100}) {
    const std::int64_t size = kTokens * channels;
    const Floats pairs = Normals(1, kBatch * 2 * size), dv = Normals(3, kBatch * size);
    Floats v(dv.size()), dpairs(pairs.size(), 9.0f);
    GuidanceForward(kBatch, size, channels, kScale, pairs.data(), v.data());
    ExpectClose(v, Reference(channels, Widen(pairs)), 1e-6);
    GuidanceBackward(kBatch, size, channels, kScale, pairs.data(), dv.data(), dpairs.data());
    ExpectClose(
        dpairs,
        NumericGradient(Widen(pairs), [&](const Doubles& at) { return Dot(Reference(channels, at), Widen(dv)); }),
        2e-5);
  }
}

TEST(Guidance, KeepsTheNormOfTheConditionalVelocity) {
  const Floats pair = Normals(1, 2 * 64), cond = Slice(pair, 0, 64);
  Floats v(64);
  GuidanceForward(1, 64, 64, kScale, pair.data(), v.data());
  EXPECT_NEAR(Dot(Widen(v), Widen(v)), Dot(Widen(cond), Widen(cond)), 1e-4);
  EXPECT_NE(v, cond);
}

}  // namespace
}  // namespace spotlight
