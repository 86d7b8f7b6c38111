// RmsNorm of kernels/norm.hpp on CUDA, forward and backward.
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/partial_sums.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

// Grid: rows.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kMostThreads, 2)
    RmsNormForwardKernel(int width, float eps, const float* __restrict__ x, const float* __restrict__ weight,
                         T* __restrict__ y, float* __restrict__ rstd) {
  __shared__ float sums[kMostWarps];
  const std::int64_t offset = static_cast<std::int64_t>(blockIdx.x) * width;
  HeldRow held;
  LoadRow<kWide>(x + offset, width, held);
  float square_sum = 0;
  ForElements<kWide>(width, [&](int slot, int i) { square_sum = fmaf(held[slot][i], held[slot][i], square_sum); });
  const float r = 1.0f / sqrtf(BlockSum(square_sum, sums) / static_cast<float>(width) + eps);
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    float out[kVector];
    LoadValues<kWide>(weight, First(slot), width, out);
#pragma unroll
    for (int i = 0; i < kVector; ++i) out[i] *= held[slot][i] * r;
    StoreValues<kWide>(y + offset, First(slot), width, out);
  }
  if (threadIdx.x == 0) rstd[blockIdx.x] = r;
}

// Grid: blocks of block_rows rows. partials: one row [width] a block; null: not wanted. dx null: not wanted.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kMostThreads)
    RmsNormBackwardKernel(int rows, int block_rows, int width, const float* __restrict__ x,
                          const float* __restrict__ weight, const float* __restrict__ rstd, const T* __restrict__ dy,
                          float* __restrict__ dx, float* __restrict__ partials) {
  __shared__ float sums[2][kMostWarps];
  const int begin = static_cast<int>(blockIdx.x) * block_rows, end = min(rows, begin + block_rows);
  HeldRow factor, weight_sum = {};
  LoadRow<kWide>(weight, width, factor);
  for (int row = begin; row < end; ++row) {
    const std::int64_t offset = static_cast<std::int64_t>(row) * width;
    const float r = rstd[row];
    HeldRow h, grad;
    LoadRow<kWide>(x + offset, width, h);
    LoadRow<kWide>(dy + offset, width, grad);
    float gh_sum = 0;
    ForElements<kWide>(width, [&](int slot, int i) {
      h[slot][i] *= r;
      weight_sum[slot][i] = fmaf(grad[slot][i], h[slot][i], weight_sum[slot][i]);
      grad[slot][i] *= factor[slot][i];
      gh_sum = fmaf(grad[slot][i], h[slot][i], gh_sum);
    });
    if (dx == nullptr) continue;
    const float gh_mean = BlockSum(gh_sum, sums[row % 2]) / static_cast<float>(width);
#pragma unroll
    for (int slot = 0; slot < kHeld; ++slot) {
      float out[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i) out[i] = r * fmaf(-h[slot][i], gh_mean, grad[slot][i]);
      StoreValues<kWide>(dx + offset, First(slot), width, out);
    }
  }
  if (partials == nullptr) return;
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    StoreValues<kWide>(partials + static_cast<std::int64_t>(blockIdx.x) * width, First(slot), width, weight_sum[slot]);
  }
}

}  // namespace

void RmsNormForward(std::int64_t rows, std::int64_t width, float eps, const float* x, const float* weight,
                    Activations y, float* rstd) {
  const unsigned threads = RowThreads(width);
  WithElements(y.type, CanBeWide(width, x, weight, y.data), [&]<typename T, bool kWide>() {
    Launch(RmsNormForwardKernel<T, kWide>, static_cast<unsigned>(rows), threads, 0, static_cast<int>(width), eps, x,
           weight, y.As<T>(), rstd);
  });
}

void RmsNormBackward(std::int64_t rows, std::int64_t width, const float* x, const float* weight, const float* rstd,
                     ConstActivations dy, float* dx, float* dweight) {
  const std::int64_t first[] = {0, rows};
  const BatchRows table({.batch = 1, .first = first}, 0, 1);
  const int block_rows = BlockRows(dweight != nullptr), blocks = RowBlocks(table.most_tokens, block_rows);
  const unsigned threads = RowThreads(width);
  float* partials = dweight != nullptr ? Scratch<float>(static_cast<std::size_t>(blocks * width)) : nullptr;
  WithElements(dy.type, CanBeWide(width, x, weight, dy.data, dx), [&]<typename T, bool kWide>() {
    Launch(RmsNormBackwardKernel<T, kWide>, static_cast<unsigned>(blocks), threads, 0, static_cast<int>(rows),
           block_rows, static_cast<int>(width), x, weight, rstd, dy.As<T>(), dx, partials);
  });
  AddPartialSums(table, block_rows, blocks, width, partials, width, {ModulationGradient{.data = dweight}, 0, 1});
}

}  // namespace spotlight::cuda
