#include <algorithm>
#include <cmath>

#include "kernels/math.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"
#include "kernels/time_frequencies.hpp"

namespace spotlight::kokkos {
namespace {

// GELU_tanh(z) = z sigmoid(2u), u = sqrt(2/pi) (z + 0.044715 z^3), since (1 + tanh u)/2 = sigmoid(2u):
// no cancellation for negative z, and one exponential.
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;
constexpr float kFlat = 16.0f;  // past it the sigmoid is 0 or 1 in fp32; keeps z^3 finite

// z within [-kFlat, kFlat]. Two comparisons of z itself would become branches, and those masks.
inline float Clamp(float z) {
  const float magnitude = std::fabs(z);
  return std::copysign(magnitude > kFlat ? kFlat : magnitude, z);
}

inline float Gelu(float z) {
  const float c = Clamp(z);
  return z * Sigmoid(kTwoRootTwoOverPi * std::fma(kCubic * c * c, c, c));
}

// s + z s (1 - s) d(2u)/dz with s = sigmoid(2u). s (1 - s) is even in u and formed without cancellation.
inline float GeluDerivative(float z) {
  const float c = Clamp(z);
  const float square = c * c;
  const float u = kTwoRootTwoOverPi * std::fma(kCubic * square, c, c);
  const float slope = kTwoRootTwoOverPi * std::fma(3 * kCubic, square, 1.0f);
  const float e = ExpOfSmall(-std::fabs(u));
  const float r = 1.0f / (1.0f + e);
  const float s = u < 0 ? e * r : r;
  return std::fma(c * slope, e * r * r, s);
}

// s (1 + z (1 - s)); s (1 - s) as above. z is clamped where e^-|z| is 0 anyway, so that 0 * inf does not occur.
inline float SiluDerivative(float z) {
  float c = z > 120.0f ? 120.0f : z;
  c = c < -120.0f ? -120.0f : c;
  const float e = ExpOfSmall(-std::fabs(c));
  const float r = 1.0f / (1.0f + e);
  const float s = c < 0 ? e * r : r;
  return std::fma(c, e * r * r, s);
}

}  // namespace

void GeluForward(std::int64_t size, ConstActivations from, Activations to) {
  const float* x = from.As<float>();
  float* y = to.As<float>();
  ParallelBlocks("GeluForward", size, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep  // x and y may be the same
    for (std::int64_t i = begin; i < end; ++i) y[i] = Gelu(x[i]);
  });
}

void GeluBackward(std::int64_t size, ConstActivations from, ConstActivations dto, Activations dfrom) {
  const float *x = from.As<float>(), *dy = dto.As<float>();
  float* dx = dfrom.As<float>();
  ParallelBlocks("GeluBackward", size, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep  // dy and dx may be the same
    for (std::int64_t i = begin; i < end; ++i) dx[i] = dy[i] * GeluDerivative(x[i]);
  });
}

void SiluForward(std::int64_t size, const float* x, float* y) {
  ParallelBlocks("SiluForward", size, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) y[i] = x[i] * Sigmoid(x[i]);
  });
}

void SiluBackward(std::int64_t size, const float* x, const float* dy, float* dx) {
  ParallelBlocks("SiluBackward", size, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) dx[i] += dy[i] * SiluDerivative(x[i]);
  });
}

void TimeSinusoid(std::int64_t rows, const float* t, float* e) {
  constexpr std::int64_t kHalf = kTimeFrequencies;
  const auto frequency = TimeFrequencies();
  ParallelFor("TimeSinusoid", rows, [=](std::int64_t row) {
    for (std::int64_t j = 0; j < kHalf; ++j) {
      const float angle = 1000.0f * (t[row] * frequency[static_cast<std::size_t>(j)]);
      e[row * 2 * kHalf + j] = static_cast<float>(std::cos(static_cast<double>(angle)));
      e[row * 2 * kHalf + kHalf + j] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  });
}

}  // namespace spotlight::kokkos
