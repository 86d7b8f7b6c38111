#include <algorithm>

#include "kernels/buffer.hpp"
#include "kernels/parallel.hpp"
#include "kernels/partial_sums.hpp"

namespace spotlight::kokkos {

float* KernelScratch(std::int64_t size) {
  thread_local Buffer scratch;
  scratch.Resize(size);
  return scratch.data();
}

void AddPartialSums(std::int64_t batch, std::int64_t blocks, std::int64_t width, const float* partials,
                    std::int64_t partial_stride, ModulationGradient sum) {
  if (sum.data == nullptr) return;
  constexpr std::int64_t kColumns = 256;
  ParallelFor("AddPartialSums", (width + kColumns - 1) / kColumns, [=](std::int64_t item) {
    const std::int64_t begin = item * kColumns;
    const std::int64_t end = std::min(width, begin + kColumns);
    for (std::int64_t b = 0; b < batch; ++b) {
      float* row = sum.data + (sum.index == nullptr ? 0 : sum.index[b] * sum.stride);
      for (std::int64_t block = 0; block < blocks; ++block) {
        const float* partial = partials + (b * blocks + block) * partial_stride;
        for (std::int64_t j = begin; j < end; ++j) row[j] += partial[j];
      }
    }
  });
}

}  // namespace spotlight::kokkos
