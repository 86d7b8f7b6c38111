#include "model/rope.hpp"

#include <algorithm>
#include <cmath>

namespace spotlight {
namespace {

constexpr double kTheta = 10000.0;

// Appends the axis' angles at an integer position. The table is fp32 as in the library: inverse
// frequency rounded, times the position, rounded, then an accurate cosine and sine.
void AppendAxis(int axis_size, int position, RopeTable& table) {
  for (int j = 0; j < axis_size / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(axis_size);
    const float frequency = 1.0f / static_cast<float>(std::pow(kTheta, static_cast<double>(exponent)));
    const float angle = static_cast<float>(position) * frequency;
    table.cos.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
    table.sin.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
  }
}

}  // namespace

RopeTable ImageRope(const std::array<int, 3>& axes, const std::vector<ImageShape>& images) {
  RopeTable table;
  for (std::size_t n = 0; n < images.size(); ++n) {
    const ImageShape& image = images[n];
    for (int f = 0; f < image.frames; ++f) {
      for (int y = 0; y < image.height; ++y) {
        for (int x = 0; x < image.width; ++x) {
          AppendAxis(axes[0], static_cast<int>(n) + f, table);
          AppendAxis(axes[1], y - (image.height - image.height / 2), table);
          AppendAxis(axes[2], x - (image.width - image.width / 2), table);
        }
      }
    }
  }
  return table;
}

RopeTable TextRope(const std::array<int, 3>& axes, const std::vector<ImageShape>& images, Index text_tokens) {
  int offset = 0;
  for (const ImageShape& image : images) offset = std::max({offset, image.height / 2, image.width / 2});
  RopeTable table;
  for (Index j = 0; j < text_tokens; ++j) {
    for (const int axis : axes) AppendAxis(axis, offset + static_cast<int>(j), table);
  }
  return table;
}

}  // namespace spotlight
