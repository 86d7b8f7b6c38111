// Rotary position tables of Qwen-Image (three axes: frame, height, width; centred image positions).
// Source: diffusers 0.42 QwenEmbedRope, checked to 3e-8.
#pragma once

#include <array>
#include <vector>

#include "base/tensor.hpp"

namespace spotlight {

// One image of the token sequence, in tokens.
struct ImageShape {
  int frames = 1;
  int height = 0;
  int width = 0;
  Index tokens() const { return Index{1} * frames * height * width; }
  bool operator==(const ImageShape&) const = default;
};

// One angle per complex pair: cos, sin [tokens, head_size / 2].
struct RopeTable {
  std::vector<float> cos, sin;
};

// Image tokens in the order frame, row, column, images one after the other. Image n starts at frame
// position n; rows and columns are centred, the extra one of an odd size on the negative side.
RopeTable ImageRope(const std::array<int, 3>& axes, const std::vector<ImageShape>& images);

// Text token j stands at m + j on all three axes, m = the largest half height or width (floor).
RopeTable TextRope(const std::array<int, 3>& axes, const std::vector<ImageShape>& images, Index text_tokens);

}  // namespace spotlight
