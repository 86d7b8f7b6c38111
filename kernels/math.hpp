// Elementary functions for the inner loops: one float in, one float out, without branches or library
// calls, so that a plain loop over them is vectorised. They use correctly rounded operations only: a
// vectorised loop and its scalar tail give the same bits.
//
// The polynomials are our own minimax fits (Remez, relative error); tests/kernels/math_test.cpp checks
// every function against double over its whole range.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace spotlight {

// 2^n for n in [-126, 127]; some number for any other.
inline float PowerOfTwo(std::int32_t n) { return std::bit_cast<float>((static_cast<std::uint32_t>(n) + 127u) << 23); }

// e^x = mantissa * 2^exponent for |x| < 2^21, the mantissa in [0.7, 1.42] within 1.1 ulp.
struct ExpParts {
  float mantissa;
  std::int32_t exponent;
};
inline ExpParts SplitExp(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e400p-1f;  // 14 bits: n * kLn2High is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRound = 0x1.8p+23f;  // adding it leaves the nearest integer in the low bits
  const float shifted = std::fma(x, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));  // |r| <= ln(2)/2

  float p = 0x1.6a1aaep-10f;
  p = std::fma(p, r, 0x1.123fb6p-7f);
  p = std::fma(p, r, 0x1.555916p-5f);
  p = std::fma(p, r, 0x1.55548ap-3f);
  p = std::fma(p, r, 0x1.fffffcp-2f);
  p = std::fma(p * r, r, r) + 1.0f;
  return {p, static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound))};
}

// e^x within 1.1 ulp; subnormal results within 1 unit of the last place. exp(-inf) = 0, exp(large) = inf, NaN stays.
inline float Exp(float x) {
  x = x > 89.0f ? 89.0f : x;  // both limits are past the point where the result is inf or 0
  x = x < -105.0f ? -105.0f : x;
  const auto [mantissa, exponent] = SplitExp(x);
  const std::int32_t half = exponent >> 1;  // 2^exponent alone may be out of range where the result is not
  return mantissa * PowerOfTwo(half) * PowerOfTwo(exponent - half);
}

// e^x for x <= 88 within 1.1 ulp, 0 where that is below 2^-126: one comparison and no second factor.
inline float ExpOfSmall(float x) {
  const auto [mantissa, exponent] = SplitExp(x);
  return x < -87.33f ? 0.0f : mantissa * PowerOfTwo(exponent);
}

// 1 / (1 + e^-x) within 2.5 ulp where it is a normal number, without overflow on either side.
inline float Sigmoid(float x) {
  const float e = ExpOfSmall(-std::fabs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

}  // namespace spotlight
