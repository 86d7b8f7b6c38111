#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/lanes.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {

void AdamWUpdate(const AdamWSettings& settings, std::int64_t step, std::int64_t size, float grad_scale,
                 const float* grad, float* weight, float* m, float* v) {
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
  const auto keep = static_cast<float>(1 - settings.lr * settings.weight_decay);
  const auto blend1 = static_cast<float>(1 - settings.beta1);
  const auto beta2 = static_cast<float>(settings.beta2);
  const auto blend2 = static_cast<float>(1 - settings.beta2);
  const auto step_size = static_cast<float>(settings.lr / correction1);
  const auto root_correction = static_cast<float>(std::sqrt(correction2));
  const auto eps = static_cast<float>(settings.eps);
  ParallelBlocks("AdamWUpdate", size, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep  // four arrays: too many for run-time overlap checks
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = grad[i] * grad_scale;
      const float mean = std::fma(blend1, g - m[i], m[i]);
      const float square = std::fma(blend2 * g, g, beta2 * v[i]);
      m[i] = mean;
      v[i] = square;
      weight[i] = weight[i] * keep - step_size * (mean / (std::sqrt(square) / root_correction + eps));
    }
  });
}

double SquaredNorm(std::int64_t size, const float* x) {
  constexpr std::int64_t kBlock = 65536;
  std::vector<double> sums(static_cast<std::size_t>((size + kBlock - 1) / kBlock));
  double* sum = sums.data();
  ParallelFor("SquaredNorm", static_cast<std::int64_t>(sums.size()), [=](std::int64_t block) {
    const float* part = x + block * kBlock;
    sum[block] = LaneSum<double>(std::min(kBlock, size - block * kBlock), [=](std::int64_t i) {
      return static_cast<double>(part[i]) * static_cast<double>(part[i]);
    });
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

void EmaUpdate(std::int64_t size, double decay, const float* weight, float* ema) {
  const auto blend = static_cast<float>(1 - decay);
  ParallelBlocks("EmaUpdate", size, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ema[i] = std::fma(blend, weight[i] - ema[i], ema[i]);
  });
}

void Scale(std::int64_t size, float a, float* y) {
  ParallelBlocks("Scale", size, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] *= a;
  });
}

void Axpy(std::int64_t size, float a, const float* x, float* y) {
  ParallelBlocks("Axpy", size, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = std::fma(a, x[i], y[i]);
  });
}

bool AllFinite(std::int64_t size, const float* x) {
  constexpr std::uint32_t kInfinity = 0x7f800000;  // the bits of every larger magnitude are NaNs
  constexpr std::int64_t kBlock = 65536;
  std::vector<std::uint32_t> largest(static_cast<std::size_t>((size + kBlock - 1) / kBlock));
  std::uint32_t* result = largest.data();
  ParallelFor("AllFinite", static_cast<std::int64_t>(largest.size()), [=](std::int64_t block) {
    std::uint32_t magnitude = 0;
    for (std::int64_t i = block * kBlock; i < std::min(size, (block + 1) * kBlock); ++i) {
      magnitude = std::max(magnitude, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
    }
    result[block] = magnitude;
  });
  return std::all_of(largest.begin(), largest.end(), [](std::uint32_t bits) { return bits < kInfinity; });
}

void SumInOrder(std::int64_t size, int ranks, int own, const float* parts, std::int64_t stride, float* values) {
  ParallelBlocks("SumInOrder", size, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      double sum = own == 0 ? values[i] : parts[i];
      for (int p = 1; p < ranks; ++p) sum += p == own ? values[i] : parts[p * stride + i];
      values[i] = static_cast<float>(sum);
    }
  });
}

}  // namespace spotlight::kokkos
