// The arithmetic of base/random.hpp's streams, for the processor and for CUDA devices: Philox4x32-10 (Salmon et al.,
// SC'11) and Box-Muller (Ann. Math. Stat. 29, 1958).
//
// Only correctly rounded operations (+, *, fma, sqrt) are used, and no product is added to anything but by fma: a
// compiler that contracts has nothing to contract, so the bits are equal everywhere.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

namespace spotlight {

// Philox4x32-10 on `Count` counters at once: words[j][i] is word j of counter i, replaced by its output.
template <int Count>
SPOTLIGHT_HOST_DEVICE inline void PhiloxRounds(std::uint64_t key, std::uint32_t (&words)[4][Count]) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < Count; ++i) {
      const std::uint64_t product0 = kMultiplier0 * words[0][i];
      const std::uint64_t product1 = kMultiplier1 * words[2][i];
      words[0][i] = static_cast<std::uint32_t>(product1 >> 32) ^ words[1][i] ^ key0;
      words[1][i] = static_cast<std::uint32_t>(product1);
      words[2][i] = static_cast<std::uint32_t>(product0 >> 32) ^ words[3][i] ^ key1;
      words[3][i] = static_cast<std::uint32_t>(product0);
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

// Natural logarithm of a positive normal number, within 2 ulp.
SPOTLIGHT_HOST_DEVICE inline float LogOfNormal(float x) {
  constexpr std::uint32_t kSqrtHalf = 0x3f3504f3;  // bits of sqrt(1/2): the mantissa lies in [sqrt(1/2), sqrt(2))
  const std::uint32_t offset = __builtin_bit_cast(std::uint32_t, x) - kSqrtHalf;
  const auto n = static_cast<float>(static_cast<std::int32_t>(offset) >> 23);
  const float f = __builtin_bit_cast(float, (offset & 0x007fffff) + kSqrtHalf) - 1.0f;
  float p = 0x1.145748p-4f;  // log(1 + f) = f - f^2/2 + f^3 p(f); minimax on [sqrt(1/2) - 1, sqrt(2) - 1]
  p = std::fma(p, f, -0x1.de3ba2p-4f);
  p = std::fma(p, f, 0x1.e6f056p-4f);
  p = std::fma(p, f, -0x1.fc221ap-4f);
  p = std::fma(p, f, 0x1.23376ap-3f);
  p = std::fma(p, f, -0x1.555c4cp-3f);
  p = std::fma(p, f, 0x1.99a4b6p-3f);
  p = std::fma(p, f, -0x1.000006p-2f);
  p = std::fma(p, f, 0x1.555548p-2f);
  const float square = f * f;
  const float tail = std::fma(n, 0x1.7f7d1cp-20f, std::fma(-0.5f, square, square * f * p));
  return std::fma(n, 0x1.62e400p-1f, f + tail);  // n ln(2) in two parts
}

// Cosine and sine of 2 pi turn / 2^32. The quadrant is taken off in integers, without error.
SPOTLIGHT_HOST_DEVICE inline void CosSinOfTurn(std::uint32_t turn, float& cosine, float& sine) {
  const std::uint32_t quadrant = (turn + 0x20000000u) >> 30;
  const auto rest = static_cast<std::int32_t>(turn - (quadrant << 30));
  const float angle = static_cast<float>(rest) * 0x1.921fb6p-30f;  // 2 pi / 2^32; |angle| <= pi/4
  const float z = angle * angle;
  float s = -0x1.994edcp-13f;
  s = std::fma(s, z, 0x1.110760p-7f);
  s = std::fma(s, z, -0x1.555546p-3f);
  s = std::fma(s * z, angle, angle);
  float c = 0x1.9a02cap-16f;
  c = std::fma(c, z, -0x1.6c0c8ep-10f);
  c = std::fma(c, z, 0x1.55554ap-5f);
  c = std::fma(c * z, z, std::fma(-0.5f, z, 1.0f));
  const bool swap = (quadrant & 1) != 0;
  const float x = swap ? s : c;
  const float y = swap ? c : s;
  // Quadrants 1, 2 turn the cosine's sign, quadrants 2, 3 the sine's.
  cosine = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, x) ^ (((quadrant + 1) & 2) << 30));
  sine = __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, y) ^ ((quadrant & 2) << 30));
}

// Two uniform words to two standard normal deviates, |z| < 6.8.
SPOTLIGHT_HOST_DEVICE inline void BoxMuller(std::uint32_t first, std::uint32_t second, float& z0, float& z1) {
  const float u = std::fma(static_cast<float>(first), 0x1p-32f, 0x1p-33f);  // in (0, 1]
  const float radius = std::sqrt(-2.0f * LogOfNormal(u));
  float cosine, sine;
  CosSinOfTurn(second, cosine, sine);
  z0 = radius * cosine;
  z1 = radius * sine;
}

}  // namespace spotlight
