// The upper half of a float: 8 bits of exponent, 7 of fraction. Weights are stored so; nothing is computed in it.
#pragma once

#include <bit>
#include <cstdint>

namespace spotlight {

struct Bfloat16 {
  std::uint16_t bits = 0;
  bool operator==(const Bfloat16&) const = default;
};

inline float ToFloat(Bfloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

// Rounds to nearest, ties to even; infinities stay, NaN stays NaN.
inline Bfloat16 ToBfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

}  // namespace spotlight
