#include "kernels/guidance.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

constexpr std::int64_t kRows = 4;
constexpr float kScale = 4.0f;

Doubles Reference(std::int64_t channels, const Doubles& cond, const Doubles& uncond) {
  Doubles v(cond.size());
  for (std::int64_t row = 0; row < kRows; ++row) {
    double cond_square = 0, guided_square = 0;
    for (std::int64_t j = 0; j < channels; ++j) {
      const auto at = static_cast<std::size_t>(row * channels + j);
      v[at] = uncond[at] + kScale * (cond[at] - uncond[at]);
      cond_square += cond[at] * cond[at];
      guided_square += v[at] * v[at];
    }
    for (std::int64_t j = 0; j < channels; ++j) {
      v[static_cast<std::size_t>(row * channels + j)] *= std::sqrt(cond_square / guided_square);
    }
  }
  return v;
}

TEST(Guidance, ForwardAndBackwardMatchDouble) {
  for (const std::int64_t channels : {2, 3, 17, 24, 64, 100}) {
    const Floats cond = Normals(1, kRows * channels), uncond = Normals(2, kRows * channels);
    const Floats dv = Normals(3, kRows * channels);
    Floats v(cond.size()), dcond(cond.size(), 9.0f), duncond(cond.size(), 9.0f);
    GuidanceForward(kRows, channels, kScale, cond.data(), uncond.data(), v.data());
    ExpectClose(v, Reference(channels, Widen(cond), Widen(uncond)), 1e-6);
    GuidanceBackward(kRows, channels, kScale, cond.data(), uncond.data(), dv.data(), dcond.data(), duncond.data());
    ExpectClose(
        dcond,
        NumericGradient(Widen(cond),
                        [&](const Doubles& at) { return Dot(Reference(channels, at, Widen(uncond)), Widen(dv)); }),
        2e-5);
    ExpectClose(
        duncond,
        NumericGradient(Widen(uncond),
                        [&](const Doubles& at) { return Dot(Reference(channels, Widen(cond), at), Widen(dv)); }),
        2e-5);
  }
}

TEST(Guidance, KeepsTheNormOfTheConditionalVelocity) {
  const Floats cond = Normals(1, 64), uncond = Normals(2, 64);
  Floats v(64);
  GuidanceForward(1, 64, kScale, cond.data(), uncond.data(), v.data());
  EXPECT_NEAR(Dot(Widen(v), Widen(v)), Dot(Widen(cond), Widen(cond)), 1e-4);
  EXPECT_NE(v, cond);
}

}  // namespace
}  // namespace spotlight
