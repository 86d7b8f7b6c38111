#include <cmath>

#include "kernels/guidance.hpp"
#include "kernels/lanes.hpp"
#include "kernels/parallel.hpp"

namespace spotlight {
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

void GuidanceForward(std::int64_t rows, std::int64_t channels, float scale, const float* cond, const float* uncond,
                     float* v) {
  ParallelFor("GuidanceForward", rows, [=](std::int64_t row) {
    const float* c = cond + row * channels;
    const float* n = uncond + row * channels;
    float* out = v + row * channels;
    const float ratio = Norm(channels, c) / NormOfGuided(channels, scale, c, n);
    for (std::int64_t j = 0; j < channels; ++j) out[j] = Guided(scale, c[j], n[j]) * ratio;
  });
}

void GuidanceBackward(std::int64_t rows, std::int64_t channels, float scale, const float* cond, const float* uncond,
                      const float* dv, float* dcond, float* duncond) {
  // v = u |c| / |u|, p = dv . u:  du = (|c| / |u|) (dv - u p / |u|^2),  dc = s du + c p / (|c| |u|),  dn = (1 - s) du.
  ParallelFor("GuidanceBackward", rows, [=](std::int64_t row) {
    const float* c = cond + row * channels;
    const float* n = uncond + row * channels;
    const float* grad = dv + row * channels;
    float* dc = dcond + row * channels;
    float* dn = duncond + row * channels;
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

}  // namespace spotlight
