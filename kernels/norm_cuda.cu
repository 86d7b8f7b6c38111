// LayerNorm with modulation of kernels/norm.hpp on CUDA, and the gated residual before it in one pass.
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/partial_sums.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

// LayerNorm and modulation of a row that the block holds; sums: shared memory.
template <bool kWide, typename T>
__device__ __forceinline__ void NormaliseRow(const HeldRow& x, int width, float eps, const float* shift,
                                             const float* scale, T* y, float* mean, float* rstd,
                                             float (&sums)[2][kMostWarps]) {
  float sum = 0, square_sum = 0;
  ForElements<kWide>(width, [&](int slot, int i) { sum += x[slot][i]; });
  const float mu = BlockSum(sum, sums[0]) / static_cast<float>(width);
  ForElements<kWide>(width, [&](int slot, int i) {
    const float deviation = x[slot][i] - mu;
    square_sum = fmaf(deviation, deviation, square_sum);
  });
  const float r = 1.0f / sqrtf(BlockSum(square_sum, sums[1]) / static_cast<float>(width) + eps);
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    float factor[kVector], out[kVector];
    LoadValues<kWide>(scale, First(slot), width, factor);
    LoadValues<kWide>(shift, First(slot), width, out);
#pragma unroll
    for (int i = 0; i < kVector; ++i) out[i] = fmaf((x[slot][i] - mu) * r, 1.0f + factor[i], out[i]);
    StoreValues<kWide>(y, First(slot), width, out);
  }
  if (threadIdx.x == 0) {
    *mean = mu;
    *rstd = r;
  }
}

// Grid: (tokens of the longest sample, samples).
template <typename T, bool kWide>
__global__ void __launch_bounds__(kMostThreads, 2)
    LayerNormModulateForwardKernel(const __grid_constant__ BatchRows rows, int width, float eps,
                                   const float* __restrict__ x, const __grid_constant__ BatchTable shift,
                                   const __grid_constant__ BatchTable scale, T* __restrict__ y,
                                   float* __restrict__ mean, float* __restrict__ rstd) {
  __shared__ float sums[2][kMostWarps];
  const int sample = static_cast<int>(blockIdx.y), row = rows.first[sample] + static_cast<int>(blockIdx.x);
  if (row >= rows.first[sample + 1]) return;
  const std::int64_t offset = static_cast<std::int64_t>(row) * width;
  HeldRow held;
  LoadRow<kWide>(x + offset, width, held);
  NormaliseRow<kWide>(held, width, eps, shift.Row(sample), scale.Row(sample), y + offset, mean + row, rstd + row, sums);
}

template <typename T, bool kWide>
__global__ void __launch_bounds__(kMostThreads, 1)
    GatedResidualLayerNormKernel(const __grid_constant__ BatchRows rows, int width, float eps,
                                 const __grid_constant__ BatchTable gate, const T* __restrict__ branch,
                                 float* __restrict__ x, const __grid_constant__ BatchTable shift,
                                 const __grid_constant__ BatchTable scale, T* __restrict__ y, float* __restrict__ mean,
                                 float* __restrict__ rstd) {
  __shared__ float sums[2][kMostWarps];
  const int sample = static_cast<int>(blockIdx.y), row = rows.first[sample] + static_cast<int>(blockIdx.x);
  if (row >= rows.first[sample + 1]) return;
  const std::int64_t offset = static_cast<std::int64_t>(row) * width;
  HeldRow held;
  LoadRow<kWide>(x + offset, width, held);
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    float factor[kVector], in[kVector];
    LoadValues<kWide>(gate.Row(sample), First(slot), width, factor);
    LoadValues<kWide>(branch + offset, First(slot), width, in);
#pragma unroll
    for (int i = 0; i < kVector; ++i) held[slot][i] = fmaf(factor[i], in[i], held[slot][i]);
    StoreValues<kWide>(x + offset, First(slot), width, held[slot]);
  }
  NormaliseRow<kWide>(held, width, eps, shift.Row(sample), scale.Row(sample), y + offset, mean + row, rstd + row, sums);
}

// Grid: (blocks of BlockRows(kSums) tokens of the longest sample, samples). partials: two rows [2, width] a block, of
// shift and scale, if kSums. dx null: not wanted.
template <typename T, bool kWide, bool kSums>
__global__ void __launch_bounds__(kMostThreads)
    LayerNormModulateBackwardKernel(const __grid_constant__ BatchRows rows, int width, const float* __restrict__ x,
                                    const float* __restrict__ mean, const float* __restrict__ rstd,
                                    const __grid_constant__ BatchTable scale, const T* __restrict__ dy,
                                    float* __restrict__ dx, float* __restrict__ partials) {
  constexpr int kRows = BlockRows(kSums);
  __shared__ float sums[2][2][kMostWarps];  // one pair for even rows, one for odd: a row needs one barrier
  const int sample = static_cast<int>(blockIdx.y);
  const int begin = rows.first[sample] + static_cast<int>(blockIdx.x) * kRows;
  const int end = min(rows.first[sample + 1], begin + kRows);
  if (begin >= end) return;
  HeldRow factor, shift_sum = {}, scale_sum = {};
  LoadRow<kWide>(scale.Row(sample), width, factor);
  for (int row = begin; row < end; ++row) {
    const std::int64_t offset = static_cast<std::int64_t>(row) * width;
    const float mu = mean[row], r = rstd[row];
    HeldRow h, grad;
    LoadRow<kWide>(x + offset, width, h);
    LoadRow<kWide>(dy + offset, width, grad);
    float g_sum = 0, gh_sum = 0;
    ForElements<kWide>(width, [&](int slot, int i) {
      h[slot][i] = (h[slot][i] - mu) * r;
      if constexpr (kSums) {
        shift_sum[slot][i] += grad[slot][i];
        scale_sum[slot][i] = fmaf(grad[slot][i], h[slot][i], scale_sum[slot][i]);
      }
      grad[slot][i] = __fmul_rn(grad[slot][i], 1.0f + factor[slot][i]);
      g_sum += grad[slot][i];
      gh_sum = fmaf(grad[slot][i], h[slot][i], gh_sum);
    });
    if (dx == nullptr) continue;
    float(&of_row)[2][kMostWarps] = sums[row % 2];
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize, warps = static_cast<int>(blockDim.x) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    g_sum = WarpSum(g_sum);
    gh_sum = WarpSum(gh_sum);
    if (lane == 0) {
      of_row[0][warp] = g_sum;
      of_row[1][warp] = gh_sum;
    }
    __syncthreads();
    const float g_mean = WarpSum(lane < warps ? of_row[0][lane] : 0.0f) / static_cast<float>(width);
    const float gh_mean = WarpSum(lane < warps ? of_row[1][lane] : 0.0f) / static_cast<float>(width);
#pragma unroll
    for (int slot = 0; slot < kHeld; ++slot) {
      float out[kVector];
      LoadValues<kWide>(dx + offset, First(slot), width, out);
#pragma unroll
      for (int i = 0; i < kVector; ++i) out[i] = fmaf(r, fmaf(-h[slot][i], gh_mean, grad[slot][i] - g_mean), out[i]);
      StoreValues<kWide>(dx + offset, First(slot), width, out);
    }
  }
  if constexpr (!kSums) return;
  float* shift_row = partials + (static_cast<std::int64_t>(sample) * gridDim.x + blockIdx.x) * 2 * width;
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    StoreValues<kWide>(shift_row, First(slot), width, shift_sum[slot]);
    StoreValues<kWide>(shift_row + width, First(slot), width, scale_sum[slot]);
  }
}

}  // namespace

void LayerNormModulateForward(const TokenRows& rows, std::int64_t width, float eps, const float* x, Modulation shift,
                              Modulation scale, Activations y, float* mean, float* rstd) {
  const bool wide = CanBeWide(width, x, y.data) && TablesAreWide(width, shift, scale);
  const unsigned threads = RowThreads(width);
  WithElements(y.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(rows.batch, [&](std::int64_t begin, std::int64_t count) {
      const BatchRows table(rows, begin, count);
      Launch(LayerNormModulateForwardKernel<T, kWide>, dim3(table.most_tokens, count), threads, 0, table,
             static_cast<int>(width), eps, x, BatchTable(shift, begin, count), BatchTable(scale, begin, count),
             y.As<T>(), mean, rstd);
    });
  });
}

void GatedResidualLayerNorm(const TokenRows& rows, std::int64_t width, float eps, Modulation gate,
                            ConstActivations branch, float* x, Modulation shift, Modulation scale, Activations y,
                            float* mean, float* rstd) {
  const bool wide = CanBeWide(width, branch.data, x, y.data) && TablesAreWide(width, gate, shift, scale);
  const unsigned threads = RowThreads(width);
  WithElements(y.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(rows.batch, [&](std::int64_t begin, std::int64_t count) {
      const BatchRows table(rows, begin, count);
      Launch(GatedResidualLayerNormKernel<T, kWide>, dim3(table.most_tokens, count), threads, 0, table,
             static_cast<int>(width), eps, BatchTable(gate, begin, count), branch.As<T>(), x,
             BatchTable(shift, begin, count), BatchTable(scale, begin, count), y.As<T>(), mean, rstd);
    });
  });
}

void LayerNormModulateBackward(const TokenRows& rows, std::int64_t width, const float* x, const float* mean,
                               const float* rstd, Modulation scale, ConstActivations dy, float* dx,
                               ModulationGradient dshift, ModulationGradient dscale) {
  const bool wide = CanBeWide(width, x, dy.data, dx) && TablesAreWide(width, scale);
  const bool want_sums = dshift.data != nullptr || dscale.data != nullptr;
  const int block_rows = BlockRows(want_sums);
  const unsigned threads = RowThreads(width);
  WithElements(dy.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(rows.batch, [&](std::int64_t begin, std::int64_t count) {
      const BatchRows table(rows, begin, count);
      const int blocks = RowBlocks(table.most_tokens, block_rows);
      float* partials = want_sums ? Scratch<float>(static_cast<std::size_t>(count * blocks * 2 * width)) : nullptr;
      const auto kernel = want_sums ? LayerNormModulateBackwardKernel<T, kWide, true>
                                    : LayerNormModulateBackwardKernel<T, kWide, false>;
      Launch(kernel, dim3(blocks, count), threads, 0, table, static_cast<int>(width), x, mean, rstd,
             BatchTable(scale, begin, count), dy.As<T>(), dx, partials);
      if (!want_sums) return;
      AddPartialSums(table, block_rows, blocks, width, partials, 2 * width, {dshift, begin, count});
      AddPartialSums(table, block_rows, blocks, width, partials + width, 2 * width, {dscale, begin, count});
    });
  });
}

}  // namespace spotlight::cuda
