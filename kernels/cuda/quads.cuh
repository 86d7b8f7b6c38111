// Rows of floats in groups of four elements: the unit of work of pointwise kernels and of sums with a fixed order.
//
// A thread owns elements [4q, 4q + 4) of a row wherever the row lies in memory: what it adds to what never depends on
// alignment. Where all rows lie on 16-byte borders a quad is one access; the tail and odd rows go element by element.
#pragma once

#include <cstdint>
#include <limits>

#include "base/error.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/vectors.cuh"

namespace spotlight::cuda {

struct Quad {
  float at[4];
};

// How much of a quad there is: all of it, on a 16-byte border, or its first 1 to 4 elements, anywhere.
struct WholeQuad {};
struct PartOfQuad {
  int count;
};

// What is missing is 0.
template <typename T>
__device__ __forceinline__ Quad LoadQuad(const T* from, WholeQuad) {
  Quad quad;
  LoadWide(from, quad.at);
  return quad;
}
template <typename T>
__device__ __forceinline__ Quad LoadQuad(const T* from, PartOfQuad part) {
  Quad quad;
  LoadValues<false>(from, 0, part.count, quad.at);
  return quad;
}

__device__ __forceinline__ void StoreQuad(float* to, const Quad& quad, WholeQuad) { StoreWide(to, quad.at); }
__device__ __forceinline__ void StoreQuad(float* to, const Quad& quad, PartOfQuad part) {
  StoreValues<false>(to, 0, part.count, quad.at);
}

// body(j, extent) for the quads of a row of `size` elements that the calling one of `threads` threads owns, j = its
// number * 4 first. kAligned: QuadsAligned(), and `size` is a multiple of 4.
template <bool kAligned, typename Body>
__device__ __forceinline__ void ForQuads(int thread, int threads, int size, const Body& body) {
  for (int j = 4 * thread; j < size; j += 4 * threads) {
    if constexpr (kAligned) {
      body(j, WholeQuad{});
    } else {
      body(j, PartOfQuad{min(4, size - j)});
    }
  }
}

// True if every quad but the last of each row of the arrays [samples, size] lies on a 16-byte border. A null pointer
// has no rows.
template <typename... Elements>
bool QuadsAligned(std::int64_t samples, std::int64_t size, const Elements*... arrays) {
  return (samples <= 1 || size % 4 == 0) && ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
}

// Blocks of `per_block` for `items`.
inline unsigned BlocksFor(std::int64_t items, std::int64_t per_block) {
  const std::int64_t blocks = (items + per_block - 1) / per_block;
  SPOTLIGHT_REQUIRE(blocks <= std::numeric_limits<std::int32_t>::max(), "more blocks than a grid has");
  return static_cast<unsigned>(blocks);
}

constexpr int kPointwiseThreads = 256;

// One thread a quad of a row, blockIdx.y = sample.
template <typename Body>
__global__ void __launch_bounds__(kPointwiseThreads)
    PointwiseKernel(std::int64_t size, bool aligned, __grid_constant__ const Body body) {
  const std::int64_t i = 4 * (static_cast<std::int64_t>(blockIdx.x) * kPointwiseThreads + threadIdx.x);
  const std::int64_t left = size - i;
  const int sample = static_cast<int>(blockIdx.y);
  if (aligned && left >= 4) {
    body(sample, sample * size + i, WholeQuad{});
  } else if (left > 0) {
    body(sample, sample * size + i, PartOfQuad{static_cast<int>(left < 4 ? left : 4)});
  }
}

// body(sample, at, extent), a __device__ member template, for every quad of [samples, size], at = sample * size + its
// place in the row. samples <= 65535; aligned: QuadsAligned() of all arrays that the body reads and writes.
template <typename Body>
void Pointwise(std::int64_t samples, std::int64_t size, bool aligned, const Body& body) {
  const dim3 grid(BlocksFor(size, std::int64_t{4} * kPointwiseThreads), static_cast<unsigned>(samples));
  Launch(PointwiseKernel<Body>, grid, kPointwiseThreads, 0, size, aligned, body);
}

}  // namespace spotlight::cuda
