#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/partial_sums.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kColumns = 32, kSlices = 16;

// A thread adds every kSlices-th partial row of one column; slice 0 then adds the slices in order. One block owns a
// column for all samples, so that those which share a row of the sum add to it one after the other.
__global__ void __launch_bounds__(kColumns* kSlices)
    AddPartialSumsKernel(const __grid_constant__ BatchRows rows, int block_tokens, int blocks, int width,
                         const float* __restrict__ partials, std::int64_t partial_stride,
                         const __grid_constant__ BatchModulation<float> sum) {
  __shared__ float slices[kSlices][kColumns];
  const int column = static_cast<int>(blockIdx.x) * kColumns + static_cast<int>(threadIdx.x);
  const int slice = static_cast<int>(threadIdx.y);
  for (int b = 0; b < rows.samples; ++b) {
    const int used = (rows.first[b + 1] - rows.first[b] + block_tokens - 1) / block_tokens;
    float value = 0;
    if (column < width) {
      const float* of_sample = partials + static_cast<std::int64_t>(b) * blocks * partial_stride + column;
#pragma unroll 4
      for (int block = slice; block < used; block += kSlices) value += of_sample[block * partial_stride];
    }
    slices[slice][threadIdx.x] = value;
    __syncthreads();
    if (slice == 0 && column < width) {
      for (int other = 1; other < kSlices; ++other) value += slices[other][threadIdx.x];
      sum.Row(b)[column] += value;
    }
    __syncthreads();
  }
}

}  // namespace

void AddPartialSums(const BatchRows& rows, int block_tokens, int blocks, std::int64_t width, const float* partials,
                    std::int64_t partial_stride, const BatchModulation<float>& sum) {
  if (sum.data == nullptr || blocks == 0) return;
  Launch(AddPartialSumsKernel, static_cast<unsigned>((width + kColumns - 1) / kColumns), dim3(kColumns, kSlices), 0,
         rows, block_tokens, blocks, static_cast<int>(width), partials, partial_stride, sum);
}

}  // namespace spotlight::cuda
