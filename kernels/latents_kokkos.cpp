#include <algorithm>
#include <span>

#include "base/random.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

// Calls move(latent index, packed index) for every element.
template <typename Move>
void ForEachPacked(const char* name, std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w,
                   const Move& move) {
  ParallelFor(name, batch * h, [=](std::int64_t item) {
    const std::int64_t sample = item / h;
    const std::int64_t row = item % h;
    for (std::int64_t column = 0; column < w; ++column) {
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        for (std::int64_t dy = 0; dy < 2; ++dy) {
          for (std::int64_t dx = 0; dx < 2; ++dx) {
            move(((sample * channels + channel) * 2 * h + 2 * row + dy) * 2 * w + 2 * column + dx,
                 (item * w + column) * 4 * channels + channel * 4 + dy * 2 + dx);
          }
        }
      }
    }
  });
}

}  // namespace

void NormalNoise(std::int64_t batch, std::int64_t size, const std::uint64_t* keys, float* out) {
  constexpr std::int64_t kBlock = 8192;  // a multiple of 4, as FillNormal asks
  const std::int64_t blocks = (size + kBlock - 1) / kBlock;
  ParallelFor("NormalNoise", batch * blocks, [=](std::int64_t item) {
    const std::int64_t sample = item / blocks;
    const std::int64_t first = item % blocks * kBlock;
    const auto count = static_cast<std::size_t>(std::min(kBlock, size - first));
    FillNormal(keys[sample], static_cast<std::uint64_t>(first), std::span(out + sample * size + first, count));
  });
}

void PackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* latents,
                 float* packed) {
  ForEachPacked("PackLatents", batch, channels, h, w,
                [=](std::int64_t latent, std::int64_t feature) { packed[feature] = latents[latent]; });
}

void UnpackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* packed,
                   float* latents) {
  ForEachPacked("UnpackLatents", batch, channels, h, w,
                [=](std::int64_t latent, std::int64_t feature) { latents[latent] = packed[feature]; });
}

}  // namespace spotlight::kokkos
