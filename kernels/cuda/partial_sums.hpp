// Sums over tokens for gradients of numbers that many tokens share, as kernels/partial_sums.hpp has them: a kernel
// leaves one partial row for each block of a sample's tokens, and AddPartialSums() adds them.
#pragma once

#include <cstdint>

#include "kernels/cuda/batch_rows.cuh"

namespace spotlight::cuda {

// sum row of sample b += the partial rows of its ceil(tokens / block_tokens) blocks, for samples in order. A sample's
// own rows are added in a tree that depends on their number alone.
// partials: row (b * blocks + block) starts at partials + row * partial_stride; blocks: of the longest sample.
// A null sum.data: nothing is wanted.
void AddPartialSums(const BatchRows& rows, int block_tokens, int blocks, std::int64_t width, const float* partials,
                    std::int64_t partial_stride, const BatchModulation<float>& sum);

}  // namespace spotlight::cuda
