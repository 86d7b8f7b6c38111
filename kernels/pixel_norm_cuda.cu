#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kWarps = 8;  // pixels of a block

// A warp has a pixel. It reads it twice, the second time from the cache.
template <bool kWide>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    NormPixelsKernel(std::int64_t pixels, int channels, float root, const float* x, const float* gamma, bool silu,
                     float* y) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int64_t pixel = std::int64_t{blockIdx.x} * kWarps + warp;
  if (pixel >= pixels) return;
  const float* in = x + pixel * channels;
  float square_sum = 0;
#pragma unroll 4
  for (int first = lane * kVector; first < channels; first += kWarpSize * kVector) {
    float values[kVector];
    LoadValues<kWide>(in, first, channels, values);
#pragma unroll
    for (const float value : values) square_sum = fmaf(value, value, square_sum);
  }
  const float factor = root / fmaxf(sqrtf(WarpSum(square_sum)), 1e-12f);
#pragma unroll 4
  for (int first = lane * kVector; first < channels; first += kWarpSize * kVector) {
    float values[kVector], weight[kVector];
    LoadValues<kWide>(in, first, channels, values);
    LoadValues<kWide>(gamma, first, channels, weight);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      values[i] *= factor * weight[i];
      if (silu) values[i] = __fdividef(values[i], 1.0f + expf(-values[i]));
    }
    StoreValues<kWide>(y + pixel * channels, first, channels, values);
  }
}

}  // namespace

void NormPixels(std::int64_t pixels, std::int64_t channels, const float* x, const float* gamma, bool silu, float* y) {
  const auto kernel = CanBeWide(channels, x, gamma, y) ? NormPixelsKernel<true> : NormPixelsKernel<false>;
  Launch(kernel, static_cast<unsigned>((pixels + kWarps - 1) / kWarps), kWarps * kWarpSize, 0, pixels,
         static_cast<int>(channels), std::sqrt(static_cast<float>(channels)), x, gamma, silu, y);
}

}  // namespace spotlight::cuda
