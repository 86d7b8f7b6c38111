// Sums in double over rows of floats, in an order that the length of a row alone decides.
//
// A row is cut into chunks; a block adds one chunk: each thread its quads in ascending order, then a tree over the
// threads. A second launch adds a row's chunks in the same way. No atomics, and no place for the number of rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/reduce.cuh"

namespace spotlight::cuda {

constexpr int kSumThreads = 256;
constexpr std::int64_t kLeastChunk = 4096;   // elements: four quads a thread
constexpr std::int64_t kMostChunks = 16384;  // of a row: one block adds them quickly

// Elements of a chunk of a row of `size`.
inline std::int64_t ChunkFor(std::int64_t size) {
  std::int64_t chunk = kLeastChunk;
  while (chunk * kMostChunks < size) chunk *= 2;
  return chunk;
}

template <typename Term>
__global__ void __launch_bounds__(kSumThreads) SumChunksKernel(std::int64_t size, std::int64_t chunk, bool aligned,
                                                               __grid_constant__ const Term term, double* partial) {
  const int sample = static_cast<int>(blockIdx.y);
  const std::int64_t row = sample * size, begin = blockIdx.x * chunk;
  const std::int64_t end = begin + chunk < size ? begin + chunk : size;
  __shared__ double parts[kMostWarps];
  double sum = 0;
  std::int64_t i = begin + 4 * static_cast<std::int64_t>(threadIdx.x);
  if (aligned) {
    for (; i + 4 <= end; i += 4 * kSumThreads) sum += term(sample, row + i, WholeQuad{});
  }
  for (; i < end; i += 4 * kSumThreads) {
    sum += term(sample, row + i, PartOfQuad{static_cast<int>(end - i < 4 ? end - i : 4)});
  }
  sum = BlockSum(sum, parts);
  if (threadIdx.x == 0) partial[static_cast<std::int64_t>(sample) * gridDim.x + blockIdx.x] = sum;
}

template <typename Result>
__global__ void __launch_bounds__(kSumThreads)
    FinishSumsKernel(int chunks, const double* partial, __grid_constant__ const Result result) {
  const int sample = static_cast<int>(blockIdx.x);
  __shared__ double parts[kMostWarps];
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kSumThreads) {
    sum += partial[static_cast<std::int64_t>(sample) * chunks + i];
  }
  sum = BlockSum(sum, parts);
  if (threadIdx.x == 0) result(sample, sum);
}

// Numbers of memory that SumRows() works in.
inline std::size_t PartialSums(std::int64_t samples, std::int64_t size) {
  return static_cast<std::size_t>(samples) * BlocksFor(size, ChunkFor(size));
}

// For each row of [samples, size]: result(sample, sum of term(sample, at, extent) over the row's quads), at as in
// Pointwise(); both are __device__ members. What a part of a quad lacks is loaded as 0: such a term must be 0. samples
// and aligned as in Pointwise(); partial [PartialSums(samples, size)].
template <typename Term, typename Result>
void SumRows(std::int64_t samples, std::int64_t size, bool aligned, const Term& term, const Result& result,
             double* partial) {
  const std::int64_t chunk = ChunkFor(size);
  const unsigned chunks = BlocksFor(size, chunk), rows = static_cast<unsigned>(samples);
  Launch(SumChunksKernel<Term>, dim3(chunks, rows), kSumThreads, 0, size, chunk, aligned, term, partial);
  Launch(FinishSumsKernel<Result>, dim3(rows), kSumThreads, 0, static_cast<int>(chunks), partial, result);
}

}  // namespace spotlight::cuda
