#include <algorithm>

#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {

void CopyBlocks(std::span<const BlockCopy> blocks, ConstActivations source, Activations target) {
  const float* from = source.As<float>();
  float* to = target.As<float>();
  ParallelFor("CopyBlocks", static_cast<std::int64_t>(blocks.size()), [=](std::int64_t item) {
    const BlockCopy& block = blocks[static_cast<std::size_t>(item)];
    for (std::int64_t row = 0; row < block.rows; ++row) {
      std::copy_n(from + block.from_offset + row * block.from_stride, block.size,
                  to + block.to_offset + row * block.to_stride);
    }
  });
}

}  // namespace spotlight::kokkos
