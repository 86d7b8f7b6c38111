#include <algorithm>
#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/math.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {

void NormPixels(std::int64_t pixels, std::int64_t channels, const float* x, const float* gamma, bool silu, float* y) {
  constexpr std::int64_t kBlock = 64;  // pixels of a work item
  const float root = std::sqrt(static_cast<float>(channels));
  ParallelFor("NormPixels", (pixels + kBlock - 1) / kBlock, [=](std::int64_t block) {
    for (std::int64_t pixel = block * kBlock; pixel < std::min(pixels, (block + 1) * kBlock); ++pixel) {
      const float* in = x + pixel * channels;
      float* out = y + pixel * channels;
      const float norm = std::sqrt(LaneSum(channels, [=](std::int64_t k) { return in[k] * in[k]; }));
      const float factor = root / std::max(norm, 1e-12f);
      if (silu) {
#pragma GCC ivdep  // x and y may be the same
        for (std::int64_t k = 0; k < channels; ++k) {
          const float value = in[k] * factor * gamma[k];
          out[k] = value * Sigmoid(value);
        }
      } else {
#pragma GCC ivdep
        for (std::int64_t k = 0; k < channels; ++k) out[k] = in[k] * factor * gamma[k];
      }
    }
  });
}

}  // namespace spotlight::kokkos
