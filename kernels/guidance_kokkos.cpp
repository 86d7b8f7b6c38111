#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

inline float Guided(float scale, float cond, float uncond) { return std::fma(scale, cond - uncond, uncond); }

inline float NormOfGuided(std::int64_t channels, float scale, const float* cond, const float* uncond) {
  return std::sqrt(LaneSum(channels, [=](std::int64_t j) {
    const float u = Guided(scale, cond[j], uncond[j]);
    return u * u;
  }));
}

inline float Norm(std::int64_t channels, const float* x) {
  return std::sqrt(LaneSum(channels, [=](std::int64_t j) { return x[j] * x[j]; }));
}

}  // namespace

void GuidanceForward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                     float* v) {
  ParallelFor("GuidanceForward", batch * size / channels, [=](std::int64_t row) {
    const std::int64_t at = row * channels;
    const float* c = pairs + at + at / size * size;  // each earlier sample has a second velocity
    const float* n = c + size;
    float* out = v + at;
    const float ratio = Norm(channels, c) / NormOfGuided(channels, scale, c, n);
    for (std::int64_t j = 0; j < channels; ++j) out[j] = Guided(scale, c[j], n[j]) * ratio;
  });
}

void GuidanceBackward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                      const float* dv, float* dpairs) {
  // v = u |c| / |u|, p = dv . u:  du = (|c| / |u|) (dv - u p / |u|^2),  dc = s du + c p / (|c| |u|),  dn = (1 - s) du.
  ParallelFor("GuidanceBackward", batch * size / channels, [=](std::int64_t row) {
    const std::int64_t at = row * channels, pair = at + at / size * size;
    const float* c = pairs + pair;
    const float* n = c + size;
    const float* grad = dv + at;
    float* dc = dpairs + pair;
    float* dn = dc + size;
    const float cond_norm = Norm(channels, c);
    const float guided_norm = NormOfGuided(channels, scale, c, n);
    const float product = LaneSum(channels, [=](std::int64_t j) { return grad[j] * Guided(scale, c[j], n[j]); });
    const float ratio = cond_norm / guided_norm;
    const float along_u = product / guided_norm / guided_norm;
    const float along_c = product / guided_norm / cond_norm;
    for (std::int64_t j = 0; j < channels; ++j) {
      const float du = ratio * (grad[j] - Guided(scale, c[j], n[j]) * along_u);
      dc[j] = std::fma(scale, du, c[j] * along_c);
      dn[j] = (1.0f - scale) * du;
    }
  });
}

}  // namespace spotlight::kokkos
