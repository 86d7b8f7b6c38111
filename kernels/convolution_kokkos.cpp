// Convolution on the CPU as products of a run of pixels with the weights of one tap (kernels/lane_product.hpp): lanes
// are output channels, the depth is the input channels. A tap that would read beyond the image is left out for the
// pixels concerned. A work item is a run of pixels in one row and a panel of output channels; its sums stay in the
// first-level cache from the first tap to the last.
#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/convolution.hpp"
#include "kernels/lane_product.hpp"
#include "kernels/parallel.hpp"

namespace spotlight {
namespace {

constexpr std::int64_t kPanel = 32;   // output channels of a work item
constexpr std::int64_t kRun = 96;     // pixels of a work item, a multiple of every tile height
constexpr std::int64_t kDepth = 192;  // input channels of one product: the weights for it fit the first-level cache

}  // namespace

Convolution::Convolution(const Shape& shape, std::span<const float> weight, std::span<const float> bias)
    : shape_(shape), panels_((shape.out + kPanel - 1) / kPanel) {
  const std::int64_t area = shape.taps * shape.taps, depth = area * shape.in;
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(weight.size()) == shape.out * depth, "weights of another shape");
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(bias.size()) == shape.out, "a bias of another shape");
  std::vector<float> packed(static_cast<std::size_t>(panels_ * depth * kPanel)), padded(packed.size() / depth);
  std::copy(bias.begin(), bias.end(), padded.begin());
  for (std::int64_t o = 0; o < shape.out; ++o) {
    for (std::int64_t k = 0; k < shape.in; ++k) {
      for (std::int64_t tap = 0; tap < area; ++tap) {
        const std::int64_t to = ((o / kPanel * area + tap) * shape.in + k) * kPanel + o % kPanel;
        packed[static_cast<std::size_t>(to)] = weight[static_cast<std::size_t>((o * shape.in + k) * area + tap)];
      }
    }
  }
  weight_.Resize(static_cast<std::int64_t>(packed.size()));
  weight_.CopyFromHost(packed);
  bias_.Resize(static_cast<std::int64_t>(padded.size()));
  bias_.CopyFromHost(padded);
}

void Convolution::Apply(const ConvolutionBand& band, const float* x, float* y) const {
  SPOTLIGHT_REQUIRE(band.first >= 0 && band.first + band.count <= band.rows, "a band beyond the image");
  const Shape s = shape_;
  const float* weights = weight_.data();
  const float* biases = bias_.data();
  const std::int64_t panels = panels_;
  const std::int64_t runs = (band.columns + kRun - 1) / kRun;
  const std::int64_t run = (band.columns + runs - 1) / runs;
  ParallelFor("Convolution", band.count * runs * panels, [=](std::int64_t item) {
    const std::int64_t panel = item % panels;
    const std::int64_t begin = item / panels % runs * run, end = std::min(begin + run, band.columns);
    const std::int64_t row = band.first + item / panels / runs;
    const std::int64_t channels = std::min(kPanel, s.out - panel * kPanel);
    const std::int64_t lanes = (channels + 7) / 8 * 8;
    const float* bias = biases + panel * kPanel;
    alignas(64) float sums[kRun * kPanel];
    for (std::int64_t c = 0; c < end - begin; ++c) std::copy_n(bias, lanes, sums + c * kPanel);
    for (std::int64_t tap = 0; tap < s.taps * s.taps; ++tap) {
      const std::int64_t from_row = row + tap / s.taps - s.pad_row, shift = tap % s.taps - s.pad_column;
      if (from_row < 0 || from_row >= band.rows) continue;
      const std::int64_t left = std::max(begin, -shift), right = std::min(end, band.columns - shift);
      if (left >= right) continue;
      const float* pixels = x + ((from_row - band.x_first) * band.columns + left + shift) * s.in;
      const float* weight = weights + (panel * s.taps * s.taps + tap) * s.in * kPanel;
      for (std::int64_t k = 0; k < s.in; k += kDepth) {
        LaneProduct(right - left, lanes, std::min(kDepth, s.in - k), pixels + k, s.in, 1, weight + k * kPanel, kPanel,
                    sums + (left - begin) * kPanel, kPanel, true);
      }
    }
    float* out = y + (row - band.first) * band.y_row + begin * band.y_column + panel * kPanel;
    for (std::int64_t c = 0; c < end - begin; ++c) {
      float* to = out + c * band.y_column;
      const float* sum = sums + c * kPanel;
      if (band.add) {
        for (std::int64_t o = 0; o < channels; ++o) to[o] += sum[o];
      } else {
        std::copy_n(sum, channels, to);
      }
    }
  });
}

}  // namespace spotlight
