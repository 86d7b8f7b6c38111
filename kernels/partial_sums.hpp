// Sums over tokens for gradients of numbers that many tokens share (modulation, norm weights).
//
// A kernel writes one partial row per block of tokens, each by one thread; AddPartialSums then adds the
// rows in the order (sample, block). The result does not depend on the number of threads.
#pragma once

#include <cstdint>

#include "kernels/norm.hpp"

namespace spotlight {

constexpr std::int64_t kTokenBlock = 32;

inline std::int64_t TokenBlocks(std::int64_t tokens) { return (tokens + kTokenBlock - 1) / kTokenBlock; }

namespace kokkos {

// Uninitialised memory of the calling thread for `size` floats, good until the thread's next call.
float* KernelScratch(std::int64_t size);

// sum row of sample b += partials[b, block, 0 .. width) for every block in order, b in order.
// partials: row (b * blocks + block) starts at partials + row * partial_stride. A null sum.index means
// that all samples share the row sum.data; a null sum.data that nothing is wanted.
void AddPartialSums(std::int64_t batch, std::int64_t blocks, std::int64_t width, const float* partials,
                    std::int64_t partial_stride, ModulationGradient sum);

}  // namespace kokkos

}  // namespace spotlight
