// Sums over the threads of a warp and of a block, in an order that depends on the number of threads alone.
#pragma once

#include "kernels/cuda/launch.hpp"

namespace spotlight::cuda {

constexpr int kWarpSize = 32;
constexpr int kMostWarps = 32;  // of a block
constexpr unsigned kAllLanes = 0xffffffffu;

// Sum of the values of all 32 lanes, for each of them (the same bits): neighbours at distance 16, 8, 4, 2, 1 are added.
template <typename Real>
__device__ __forceinline__ Real WarpSum(Real value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// Sum over a block of one dimension, a multiple of 32 threads, for every thread (the same bits). All of them have to
// call it. `parts`: shared memory [kMostWarps] which no thread reads or writes for anything else from its last barrier
// before this call to its next one after it.
template <typename Real>
__device__ __forceinline__ Real BlockSum(Real value, Real* parts) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  value = WarpSum(value);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  return WarpSum(lane < warps ? parts[lane] : Real{0});
}

}  // namespace spotlight::cuda
