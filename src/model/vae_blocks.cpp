#include "model/vae_blocks.hpp"

#include <algorithm>

#include "kernels/attention.hpp"
#include "kernels/pixel_norm.hpp"

namespace spotlight {
namespace {

constexpr Index kKept = 2;  // rows above a band that a 3x3 convolution still needs

Index BandRows(const BandMemory& memory, Index rows, Index row_size) {
  return std::clamp(memory.floats / row_size, kKept, std::max(kKept, rows + kKept));
}

// Result rows [first, last) of a convolution; x begins with row x_first of the image, y with row y_first.
void ApplyRows(const Convolution& convolution, const FeatureMap& map, Index first, Index last, Index x_first,
               const float* x, Index y_first, float* y, bool add) {
  const Index out = convolution.shape().out, y_row = map.columns * out;
  convolution.Apply({.rows = map.rows,
                     .columns = map.columns,
                     .first = first,
                     .count = last - first,
                     .x_first = x_first,
                     .y_row = y_row,
                     .y_column = out,
                     .add = add},
                    x, y + (first - y_first) * y_row);
}

// y += conv2(SiLU(norm2(conv1(SiLU(norm1(x)))))); y may be x. In each step norm1 goes ahead to row `end`, conv1 follows
// one row behind and conv2, which writes y, two: a row of x is read before it is overwritten.
void AddBranch(const ResidualBlock& block, const FeatureMap& x, FeatureMap& y, BandMemory& memory) {
  const Index rows = x.rows, band = BandRows(memory, rows, std::max(x.row_size(), y.row_size()));
  memory.first.Resize((band + kKept) * x.row_size());
  memory.second.Resize((band + kKept) * y.row_size());
  float* normed = memory.first.data();   // rows [begin - 2, end) of SiLU(norm1(x))
  float* middle = memory.second.data();  // rows [begin - 3, end - 1) of SiLU(norm2(conv1(...)))
  for (Index begin = 0; begin < rows + kKept; begin += band) {
    const Index end = begin + band;
    const auto within = [&](Index row) { return std::clamp<Index>(row, 0, rows); };
    NormPixels((within(end) - within(begin)) * x.columns, x.channels, x.values.data() + within(begin) * x.row_size(),
               block.norm1.data(), true, normed + kKept * x.row_size());
    const Index first = within(begin - 1), last = within(end - 1);
    ApplyRows(block.conv1, x, first, last, begin - 2, normed, begin - 3, middle, false);
    float* fresh = middle + (first - (begin - 3)) * y.row_size();
    NormPixels((last - first) * y.columns, y.channels, fresh, block.norm2.data(), true, fresh);
    ApplyRows(block.conv2, y, within(begin - 2), within(end - 2), begin - 3, middle, 0, y.values.data(), true);
    CopyFloats(normed + band * x.row_size(), normed, kKept * x.row_size());
    CopyFloats(middle + band * y.row_size(), middle, kKept * y.row_size());
  }
}

// Taps of the 3x3 kernel that meet at tap `small` of the 2x2 one, for result rows (or columns) of one parity: of an
// even row, the row above in the small map is seen once and its own twice; of an odd row, its own twice and the next
// once.
std::array<Index, 2> TapsBetween(Index parity, Index small) {
  if (parity == 0) return small == 0 ? std::array<Index, 2>{0, 1} : std::array<Index, 2>{1, 3};
  return small == 0 ? std::array<Index, 2>{0, 2} : std::array<Index, 2>{2, 3};
}

}  // namespace

Convolution SamePadded(Index in, Index out, Index taps, std::span<const float> weight, std::span<const float> bias) {
  return Convolution({.in = in, .out = out, .taps = taps, .pad_row = taps / 2, .pad_column = taps / 2}, weight, bias);
}

UpsamplingConvolution MakeUpsampling(Index in, Index out, std::span<const float> weight, std::span<const float> bias) {
  const auto of_parity = [&](Index row, Index column) {
    std::vector<float> sums(static_cast<std::size_t>(out * in * 4));
    for (Index kernel = 0; kernel < out * in; ++kernel) {
      for (Index tap = 0; tap < 4; ++tap) {
        const auto [top, bottom] = TapsBetween(row, tap / 2);
        const auto [left, right] = TapsBetween(column, tap % 2);
        double sum = 0;
        for (Index i = top; i < bottom; ++i) {
          for (Index j = left; j < right; ++j) sum += weight[static_cast<std::size_t>(kernel * 9 + i * 3 + j)];
        }
        sums[static_cast<std::size_t>(kernel * 4 + tap)] = static_cast<float>(sum);
      }
    }
    return Convolution({.in = in, .out = out, .taps = 2, .pad_row = 1 - row, .pad_column = 1 - column}, sums, bias);
  };
  return {{of_parity(0, 0), of_parity(0, 1), of_parity(1, 0), of_parity(1, 1)}};
}

FeatureMap Apply(const Convolution& convolution, const FeatureMap& x) {
  FeatureMap y(x.rows, x.columns, convolution.shape().out);
  ApplyRows(convolution, x, 0, x.rows, 0, x.values.data(), 0, y.values.data(), false);
  return y;
}

FeatureMap Apply(const ResidualBlock& block, FeatureMap x, BandMemory& memory) {
  if (block.shortcut.has_value()) {
    FeatureMap y = Apply(*block.shortcut, x);
    AddBranch(block, x, y, memory);
    return y;
  }
  AddBranch(block, x, x, memory);
  return x;
}

FeatureMap Apply(const PixelAttention& attention, FeatureMap x) {
  const Index pixels = x.rows * x.columns;
  FeatureMap normed(x.rows, x.columns, x.channels);
  NormPixels(pixels, x.channels, x.values.data(), attention.norm.data(), false, normed.values.data());
  const FeatureMap q = Apply(attention.query, normed), k = Apply(attention.key, normed),
                   v = Apply(attention.value, normed);
  const TokenRowTable none({0}), all({pixels});
  Buffer log_sums(pixels);
  AttentionForward({.text = none.view(), .image = all.view(), .heads = 1, .head_size = x.channels}, q.values.data(),
                   k.values.data(), v.values.data(), nullptr, nullptr, normed.values.data(), log_sums.data());
  ApplyRows(attention.proj, x, 0, x.rows, 0, normed.values.data(), 0, x.values.data(), true);
  return x;
}

FeatureMap Apply(const UpsamplingConvolution& convolution, const FeatureMap& x) {
  FeatureMap y(2 * x.rows, 2 * x.columns, convolution.out());
  for (Index parity = 0; parity < 4; ++parity) {
    const ConvolutionBand band{
        .rows = x.rows, .columns = x.columns, .count = x.rows, .y_row = 2 * y.row_size(), .y_column = 2 * y.channels};
    convolution.parity[static_cast<std::size_t>(parity)].Apply(
        band, x.values.data(), y.values.data() + parity / 2 * y.row_size() + parity % 2 * y.channels);
  }
  return y;
}

FeatureMap Apply(const OutputHead& head, const FeatureMap& x, BandMemory& memory) {
  FeatureMap y(x.rows, x.columns, head.conv.shape().out);
  const Index rows = x.rows, band = BandRows(memory, rows, x.row_size());
  memory.first.Resize((band + kKept) * x.row_size());
  float* normed = memory.first.data();  // rows [begin - 2, end); the convolution follows one row behind
  for (Index begin = 0; begin < rows + 1; begin += band) {
    const auto within = [&](Index row) { return std::clamp<Index>(row, 0, rows); };
    const Index end = begin + band;
    NormPixels((within(end) - within(begin)) * x.columns, x.channels, x.values.data() + within(begin) * x.row_size(),
               head.norm.data(), true, normed + kKept * x.row_size());
    ApplyRows(head.conv, x, within(begin - 1), within(end - 1), begin - 2, normed, 0, y.values.data(), false);
    CopyFloats(normed + band * x.row_size(), normed, kKept * x.row_size());
  }
  return y;
}

}  // namespace spotlight
