// 8-bit pixels of an image: values are clamped to [0, 1], 255 x is rounded to nearest, halves to even
// (as diffusers does through NumPy); NaN becomes 0.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "base/image.hpp"

namespace spotlight {

// [height, width, 3]
inline std::vector<std::uint8_t> Quantize(const Image& image) {
  SPOTLIGHT_REQUIRE(image.rgb.size() == std::size_t{3} * image.height * image.width, "an image of height x width x 3");
  std::vector<std::uint8_t> bytes(image.rgb.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const float x = image.rgb[i];
    bytes[i] = x > 0 ? static_cast<std::uint8_t>(std::lrint(255.0f * (x < 1 ? x : 1.0f))) : std::uint8_t{0};
  }
  return bytes;
}

}  // namespace spotlight
