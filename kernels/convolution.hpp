// 2-D convolution of one image in NHWC layout, x [rows, columns, in] -> y [rows, columns, out], stride 1:
//
//   y[r, c, o] = bias[o] + sum over i, j, k of x[r + i - pad_row, c + j - pad_column, k] weight[o, k, i, j]
//
// with x = 0 outside the image, by the definition of torch.nn.Conv2d. Rows may be computed in bands: every result is
// one chain of fused multiply-adds in the order i, j, k that starts from the bias, so its bits depend neither on the
// band nor on the number of threads. fp32.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/buffer.hpp"

namespace spotlight {

// Which rows to compute and where they lie.
struct ConvolutionBand {
  std::int64_t rows = 0, columns = 0;    // of the whole image
  std::int64_t first = 0, count = 0;     // rows of the result: [first, first + count)
  std::int64_t x_first = 0;              // row of the image that the memory at x begins with; its rows are dense
  std::int64_t y_row = 0, y_column = 0;  // floats between rows and between columns of y
  bool add = false;                      // y += the result instead of y = the result
};

struct ConvolutionShape {
  std::int64_t in = 0, out = 0;              // channels
  std::int64_t taps = 0;                     // rows and columns of the kernel
  std::int64_t pad_row = 0, pad_column = 0;  // zero rows above the image, zero columns left of it
};

// weight [out, in, taps, taps] and bias [out], in host memory, as the back end wants to read them.
void PackConvolution(const ConvolutionShape& shape, std::span<const float> weight, std::span<const float> bias,
                     Buffer& packed_weight, Buffer& packed_bias);

// y begins with row `first`. x and y must not overlap. x must hold every row of the image in
// [first - pad_row, first + count - 1 - pad_row + taps - 1].
void Convolve(const ConvolutionShape& shape, const Buffer& packed_weight, const Buffer& packed_bias,
              const ConvolutionBand& band, const float* x, float* y);

// A convolution with its weights.
class Convolution {
 public:
  Convolution(const ConvolutionShape& shape, std::span<const float> weight, std::span<const float> bias)
      : shape_(shape) {
    PackConvolution(shape, weight, bias, weight_, bias_);
  }

  const ConvolutionShape& shape() const { return shape_; }
  void Apply(const ConvolutionBand& band, const float* x, float* y) const {
    Convolve(shape_, weight_, bias_, band, x, y);
  }

 private:
  ConvolutionShape shape_;
  Buffer weight_, bias_;
};

}  // namespace spotlight
