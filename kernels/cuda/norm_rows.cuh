// What the kernels of norm.hpp share: how a block holds a row, and how rows are grouped for sums over tokens.
//
// Products that are added are written fmaf or __fmul_rn in all of them: what the compiler may contract elsewhere, it
// could contract in one kernel and not in another, and the fused operation has to have the bits of the two it stands
// for.
#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "kernels/cuda/batch_rows.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"

namespace spotlight::cuda {

// A kernel that needs sums over a row gives a block to the row and keeps the row in registers, kHeld vectors a thread:
// 192 threads for the model's 3072.
constexpr int kHeld = 4;
constexpr int kMostThreads = 512;
// Rows whose contributions to a sum over tokens one block adds up: enough blocks to fill a device at 4096 tokens, and
// partial sums of a tenth of the rows' bytes.
constexpr int kBlockRows = 16;
// Where no sums are wanted (an adapter's backward) a block has one row: what it writes does not depend on its others.
constexpr int BlockRows(bool sums) { return sums ? kBlockRows : 1; }

using HeldRow = float[kHeld][kVector];

// Of a block for rows of `width`.
inline unsigned RowThreads(std::int64_t width) {
  const std::int64_t per_thread = kHeld * kVector;
  const std::int64_t threads = (width + per_thread * kWarpSize - 1) / (per_thread * kWarpSize) * kWarpSize;
  SPOTLIGHT_REQUIRE(threads <= kMostThreads, "a row of a norm on CUDA is at most 8192 wide");
  return static_cast<unsigned>(threads);
}

// Blocks of `block_rows` for `rows` rows of one sample.
inline int RowBlocks(int rows, int block_rows) { return (rows + block_rows - 1) / block_rows; }

// Where the thread's vector `slot` of a row begins.
__device__ __forceinline__ int First(int slot) {
  return (slot * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kVector;
}

template <bool kWide, typename T>
__device__ __forceinline__ void LoadRow(const T* row, int width, HeldRow& values) {
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) LoadValues<kWide>(row, First(slot), width, values[slot]);
}

// Calls body(slot, i) for the thread's elements of a row.
template <bool kWide, typename Body>
__device__ __forceinline__ void ForElements(int width, const Body& body) {
#pragma unroll
  for (int slot = 0; slot < kHeld; ++slot) {
    const int first = First(slot);
    if (kWide && first >= width) continue;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if (kWide || first + i < width) body(slot, i);
    }
  }
}

// True if rows of modulation tables can be read wide.
template <typename... Tables>
bool TablesAreWide(std::int64_t width, const Tables&... tables) {
  return (CanBeWide(width, tables.data) && ...) && ((tables.stride % kVector == 0) && ...);
}

}  // namespace spotlight::cuda
