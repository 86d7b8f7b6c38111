#include "io/elements.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace spotlight {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

// IEEE binary16, without branches so that loops over it become vector code.
float FromHalf(std::uint16_t half) {
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t sign = (half & 0x8000u) << 16;
  // Subnormal: fraction * 2^-24 = (1 + fraction / 2^10) * 2^-14 - 2^-14, exactly.
  const float small =
      std::bit_cast<float>(0x38800000u + (magnitude << 13)) - std::bit_cast<float>(std::uint32_t{0x38800000u});
  const std::uint32_t rebias = magnitude >= 0x7c00u ? 224u << 23 : 112u << 23;  // infinity and NaN keep all ones
  const std::uint32_t large = (magnitude << 13) + rebias;
  const std::uint32_t bits = magnitude < 0x400u ? std::bit_cast<std::uint32_t>(small) : large;
  return std::bit_cast<float>(bits | sign);
}

float FromBfloat16(std::uint16_t bits) { return ToFloat(Bfloat16{bits}); }

template <typename To, typename Value>
To Rounded(Value value) {
  if constexpr (std::is_same_v<To, Bfloat16>) {
    return ToBfloat16(static_cast<float>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To, typename Convert>
void ConvertAll(const std::byte* from, std::span<To> out, Convert convert) {
  To* const to = out.data();
  const std::size_t count = out.size();
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    to[i] = Rounded<To>(convert(value));
  }
}

template <typename To>
bool CopyElements(const std::byte* from, std::span<To> out) {
  if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
  return true;
}

template <typename To>
bool Convert(std::string_view dtype, const std::byte* from, std::span<To> out) {
  const auto same = [](auto value) { return value; };
  if (dtype == "BF16") {
    if constexpr (std::is_same_v<To, Bfloat16>) return CopyElements(from, out);
    ConvertAll<std::uint16_t>(from, out, FromBfloat16);
  } else if (dtype == "F32") {
    if constexpr (std::is_same_v<To, float>) return CopyElements(from, out);
    ConvertAll<float>(from, out, same);
  } else if (dtype == "F16") {
    ConvertAll<std::uint16_t>(from, out, FromHalf);
  } else if (dtype == "F64") {
    ConvertAll<double>(from, out, same);
  } else if (dtype == "I64") {
    ConvertAll<std::int64_t>(from, out, same);
  } else if (dtype == "I32") {
    ConvertAll<std::int32_t>(from, out, same);
  } else {
    return false;
  }
  return true;
}

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint16_t BitsOf(Bfloat16 value) { return value.bits; }

// Without its sign bit an infinity or NaN is at or above `infinity`. A block is searched only if a pass of vector code
// over it says that there is something to find.
template <typename Bits, typename Value>
std::size_t FindFrom(std::span<const Value> values, Bits infinity) {
  constexpr std::size_t kBlock = 4096;
  const Bits mask = static_cast<Bits>(infinity | (infinity - 1));
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const std::size_t end = std::min(values.size(), begin + kBlock);
    Bits largest = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const Bits magnitude = static_cast<Bits>(BitsOf(values[i]) & mask);
      largest = magnitude > largest ? magnitude : largest;
    }
    if (largest < infinity) continue;
    std::size_t i = begin;
    while ((BitsOf(values[i]) & mask) < infinity) ++i;
    return i;
  }
  return values.size();
}

}  // namespace

std::size_t BytesPerElement(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::size_t>, 15> kBytes = {{{"BOOL", 1},
                                                                                       {"U8", 1},
                                                                                       {"I8", 1},
                                                                                       {"F8_E5M2", 1},
                                                                                       {"F8_E4M3", 1},
                                                                                       {"I16", 2},
                                                                                       {"U16", 2},
                                                                                       {"F16", 2},
                                                                                       {"BF16", 2},
                                                                                       {"I32", 4},
                                                                                       {"U32", 4},
                                                                                       {"F32", 4},
                                                                                       {"F64", 8},
                                                                                       {"I64", 8},
                                                                                       {"U64", 8}}};
  const auto found = std::find_if(kBytes.begin(), kBytes.end(), [&](const auto& row) { return row.first == dtype; });
  return found == kBytes.end() ? 0 : found->second;
}

bool ConvertElements(std::string_view dtype, const std::byte* from, std::span<float> out) {
  return Convert(dtype, from, out);
}

bool ConvertElements(std::string_view dtype, const std::byte* from, std::span<double> out) {
  return Convert(dtype, from, out);
}

bool ConvertElements(std::string_view dtype, const std::byte* from, std::span<Bfloat16> out) {
  return Convert(dtype, from, out);
}

std::size_t FindNotFinite(std::span<const float> values) { return FindFrom<std::uint32_t>(values, 0x7f800000u); }

std::size_t FindNotFinite(std::span<const Bfloat16> values) { return FindFrom<std::uint16_t>(values, 0x7f80u); }

}  // namespace spotlight
