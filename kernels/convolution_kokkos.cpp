// Convolution on the CPU as products of a run of pixels with the weights of one tap (kernels/lane_product.hpp): lanes
// are output channels, the depth is the input channels. A tap that would read beyond the image is left out for the
// pixels concerned. A work item is a run of pixels in one row and a panel of output channels; its sums stay in the
// first-level cache from the first tap to the last.
#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "kernels/lane_product.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

constexpr std::int64_t kPanel = 32;   // output channels of a work item
constexpr std::int64_t kRun = 96;     // pixels of a work item, a multiple of every tile height
constexpr std::int64_t kDepth = 192;  // input channels of one product: the weights for it fit the first-level cache

std::int64_t Panels(const ConvolutionShape& shape) { return (shape.out + kPanel - 1) / kPanel; }

}  // namespace

// packed_weight [panels, taps, taps, in, kPanel]: each panel of output channels is read from end to end. packed_bias
// [panels, kPanel].
void PackConvolution(const ConvolutionShape& shape, std::span<const float> weight, std::span<const float> bias,
                     Buffer& packed_weight, Buffer& packed_bias) {
  const std::int64_t area = shape.taps * shape.taps, depth = area * shape.in;
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(weight.size()) == shape.out * depth, "weights of another shape");
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(bias.size()) == shape.out, "a bias of another shape");
  std::vector<float> packed(static_cast<std::size_t>(Panels(shape) * depth * kPanel)), padded(packed.size() / depth);
  std::copy(bias.begin(), bias.end(), padded.begin());
  for (std::int64_t o = 0; o < shape.out; ++o) {
    for (std::int64_t k = 0; k < shape.in; ++k) {
      for (std::int64_t tap = 0; tap < area; ++tap) {
        const std::int64_t to = ((o / kPanel * area + tap) * shape.in + k) * kPanel + o % kPanel;
        packed[static_cast<std::size_t>(to)] = weight[static_cast<std::size_t>((o * shape.in + k) * area + tap)];
      }
    }
  }
  packed_weight.Resize(static_cast<std::int64_t>(packed.size()));
  packed_weight.CopyFromHost(packed);
  packed_bias.Resize(static_cast<std::int64_t>(padded.size()));
  packed_bias.CopyFromHost(padded);
}

void Convolve(const ConvolutionShape& shape, const Buffer& packed_weight, const Buffer& packed_bias,
              const ConvolutionBand& band, const float* x, float* y) {
  SPOTLIGHT_REQUIRE(band.first >= 0 && band.first + band.count <= band.rows, "a band beyond the image");
  const ConvolutionShape s = shape;
  const float* weights = packed_weight.data();
  const float* biases = packed_bias.data();
  const std::int64_t panels = Panels(shape);
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

}  // namespace spotlight::kokkos
