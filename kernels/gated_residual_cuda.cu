// GatedResidual of kernels/norm.hpp on CUDA, forward and backward.
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/norm_rows.cuh"
#include "kernels/cuda/partial_sums.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kPointThreads = 256;

// Grid: (tokens of the longest sample, samples, groups of kPointThreads vectors of a row).
template <typename T, bool kWide>
__global__ void __launch_bounds__(kPointThreads)
    GatedResidualForwardKernel(const __grid_constant__ BatchRows rows, int width,
                               const __grid_constant__ BatchTable gate, const T* __restrict__ branch,
                               float* __restrict__ x) {
  const int sample = static_cast<int>(blockIdx.y), row = rows.first[sample] + static_cast<int>(blockIdx.x);
  if (row >= rows.first[sample + 1]) return;
  const std::int64_t offset = static_cast<std::int64_t>(row) * width;
  const int first = static_cast<int>(blockIdx.z * kPointThreads + threadIdx.x) * kVector;
  float factor[kVector], in[kVector], out[kVector];
  LoadValues<kWide>(gate.Row(sample), first, width, factor);
  LoadValues<kWide>(branch + offset, first, width, in);
  LoadValues<kWide>(x + offset, first, width, out);
#pragma unroll
  for (int i = 0; i < kVector; ++i) out[i] = fmaf(factor[i], in[i], out[i]);
  StoreValues<kWide>(x + offset, first, width, out);
}

// Grid: (blocks of block_rows tokens of the longest sample, samples, groups of kPointThreads vectors of a row).
// partials: one row [width] a block; null: not wanted. dbranch null: not wanted.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kPointThreads)
    GatedResidualBackwardKernel(const __grid_constant__ BatchRows rows, int block_rows, int width,
                                const __grid_constant__ BatchTable gate, const T* __restrict__ branch,
                                const float* __restrict__ dx, T* __restrict__ dbranch, float* __restrict__ partials) {
  const int sample = static_cast<int>(blockIdx.y);
  const int begin = rows.first[sample] + static_cast<int>(blockIdx.x) * block_rows;
  const int end = min(rows.first[sample + 1], begin + block_rows);
  const int first = static_cast<int>(blockIdx.z * kPointThreads + threadIdx.x) * kVector;
  if (begin >= end) return;
  float factor[kVector], sum[kVector] = {};
  LoadValues<kWide>(gate.Row(sample), first, width, factor);
#pragma unroll 4
  for (int row = begin; row < end; ++row) {
    const std::int64_t offset = static_cast<std::int64_t>(row) * width;
    float grad[kVector];
    LoadValues<kWide>(dx + offset, first, width, grad);
    if (partials != nullptr) {
      float in[kVector];
      LoadValues<kWide>(branch + offset, first, width, in);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum[i] = fmaf(grad[i], in[i], sum[i]);
    }
    if (dbranch == nullptr) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) grad[i] *= factor[i];
    StoreValues<kWide>(dbranch + offset, first, width, grad);
  }
  if (partials == nullptr) return;
  StoreValues<kWide>(partials + (static_cast<std::int64_t>(sample) * gridDim.x + blockIdx.x) * width, first, width,
                     sum);
}

unsigned PointGroups(std::int64_t width) {
  return static_cast<unsigned>((width + kPointThreads * kVector - 1) / (kPointThreads * kVector));
}

}  // namespace

void GatedResidualForward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                          float* x) {
  const bool wide = CanBeWide(width, branch.data, x) && TablesAreWide(width, gate);
  WithElements(branch.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(rows.batch, [&](std::int64_t begin, std::int64_t count) {
      const BatchRows table(rows, begin, count);
      Launch(GatedResidualForwardKernel<T, kWide>, dim3(table.most_tokens, count, PointGroups(width)), kPointThreads, 0,
             table, static_cast<int>(width), BatchTable(gate, begin, count), branch.As<T>(), x);
    });
  });
}

void GatedResidualBackward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                           const float* dx, Activations dbranch, ModulationGradient dgate) {
  const bool wide = CanBeWide(width, branch.data, dx, dbranch.data) && TablesAreWide(width, gate);
  const int block_rows = BlockRows(dgate.data != nullptr);
  WithElements(branch.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(rows.batch, [&](std::int64_t begin, std::int64_t count) {
      const BatchRows table(rows, begin, count);
      const int blocks = RowBlocks(table.most_tokens, block_rows);
      float* partials =
          dgate.data != nullptr ? Scratch<float>(static_cast<std::size_t>(count * blocks * width)) : nullptr;
      Launch(GatedResidualBackwardKernel<T, kWide>, dim3(blocks, count, PointGroups(width)), kPointThreads, 0, table,
             block_rows, static_cast<int>(width), BatchTable(gate, begin, count), branch.As<T>(), dx, dbranch.As<T>(),
             partials);
      AddPartialSums(table, block_rows, blocks, width, partials, width, {dgate, begin, count});
    });
  });
}

}  // namespace spotlight::cuda
