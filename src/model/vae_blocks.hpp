// The building blocks of the Qwen-Image autoencoder's decoder, on one image (Wan's causal video decoder, whose 3-D
// convolutions are 2-D ones for a single frame; diffusers' autoencoder_kl_qwenimage.py).
//
// Feature maps are [rows, columns, channels]. Blocks go over them in bands of rows and keep two rows between bands, so
// the memory beside the map itself is bounded and no row is computed twice; bits do not depend on the height of a band.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "base/tensor.hpp"
#include "kernels/buffer.hpp"
#include "kernels/convolution.hpp"

namespace spotlight {

struct FeatureMap {
  Index rows = 0, columns = 0, channels = 0;
  Buffer values;

  FeatureMap(Index rows, Index columns, Index channels)
      : rows(rows), columns(columns), channels(channels), values(rows * columns * channels) {}
  Index row_size() const { return columns * channels; }
};

// Two maps of a band of rows, reused from block to block. They hold about `floats` each.
struct BandMemory {
  Index floats = 0;
  Buffer first, second;
};

// conv2(SiLU(norm2(conv1(SiLU(norm1(x)))))) + shortcut(x); shortcut is a 1x1 convolution where the widths differ, else
// x.
struct ResidualBlock {
  Buffer norm1;  // gamma
  Convolution conv1;
  Buffer norm2;
  Convolution conv2;
  std::optional<Convolution> shortcut;
};

// x + proj(softmax(q k^T / sqrt(channels)) v) over all pixels, one head; q, k, v are 1x1 convolutions of norm(x).
struct PixelAttention {
  Buffer norm;  // gamma
  Convolution query, key, value, proj;
};

// A 3x3 convolution of the map magnified twice (nearest). Every result pixel sees 2x2 pixels of the small map only, by
// weights that are sums of the 3x3 ones: one 2x2 convolution for each parity of row and column, 4/9 of the work.
struct UpsamplingConvolution {
  std::array<Convolution, 4> parity;  // [2 * (row % 2) + column % 2]

  Index out() const { return parity[0].shape().out; }
};

// conv(SiLU(norm(x))).
struct OutputHead {
  Buffer norm;  // gamma
  Convolution conv;
};

// 3x3 and 1x1 convolution with as many result pixels as x has.
Convolution SamePadded(Index in, Index out, Index taps, std::span<const float> weight, std::span<const float> bias);

// weight [out, in, 3, 3] of the magnified map.
UpsamplingConvolution MakeUpsampling(Index in, Index out, std::span<const float> weight, std::span<const float> bias);

FeatureMap Apply(const Convolution& convolution, const FeatureMap& x);
FeatureMap Apply(const ResidualBlock& block, FeatureMap x, BandMemory& memory);
FeatureMap Apply(const PixelAttention& attention, FeatureMap x);
FeatureMap Apply(const UpsamplingConvolution& convolution, const FeatureMap& x);
FeatureMap Apply(const OutputHead& head, const FeatureMap& x, BandMemory& memory);

}  // namespace spotlight
