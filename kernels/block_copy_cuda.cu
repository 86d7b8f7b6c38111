// Copies of many blocks on CUDA devices (kernels/block_copy.hpp). The list travels with the launch, 80 blocks at a
// time: nothing is uploaded or allocated, and a graph of launches keeps its copy.
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cuda/quads.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::size_t kBlocksPerLaunch = 80;     // 3840 bytes
constexpr std::int64_t kMostGridBlocks = 65536;  // more would find little left to do where the sizes differ much

struct BlockTable {
  BlockCopy at[kBlocksPerLaunch];
};

// Threads blockIdx.x * kThreads .. of the block's units, row by row. Unit: an element, or 16 bytes of them.
template <typename Unit>
__device__ __forceinline__ void CopyUnits(std::int64_t rows, std::int64_t size, const Unit* from,
                                          std::int64_t from_stride, Unit* to, std::int64_t to_stride) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows * size; i += step) {
    // 32 bits: a division of 64 takes as long as the copy.
    const std::uint32_t row = rows == 1 ? 0 : static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(size);
    const std::int64_t column = i - row * size;
    to[row * to_stride + column] = from[row * from_stride + column];
  }
}

// Element: an unsigned integer of its size. Blocks: [parts, blocks of the table].
template <typename Element>
__global__ void __launch_bounds__(kThreads)
    CopyBlocksKernel(__grid_constant__ const BlockTable table, const Element* from, Element* to) {
  constexpr std::int64_t kWide = sizeof(uint4) / sizeof(Element);
  const BlockCopy& block = table.at[blockIdx.y];
  const Element* const source = from + block.from_offset;
  Element* const target = to + block.to_offset;
  const bool wide =
      (reinterpret_cast<std::uintptr_t>(source) | reinterpret_cast<std::uintptr_t>(target)) % sizeof(uint4) == 0 &&
      (block.size | block.from_stride | block.to_stride) % kWide == 0;
  if (wide) {
    CopyUnits(block.rows, block.size / kWide, reinterpret_cast<const uint4*>(source), block.from_stride / kWide,
              reinterpret_cast<uint4*>(target), block.to_stride / kWide);
  } else {
    CopyUnits(block.rows, block.size, source, block.from_stride, target, block.to_stride);
  }
}

template <typename Element>
void CopyAll(std::span<const BlockCopy> blocks, const void* from, void* to) {
  constexpr std::int64_t kWide = sizeof(uint4) / sizeof(Element);
  for (; !blocks.empty(); blocks = blocks.subspan(std::min(kBlocksPerLaunch, blocks.size()))) {
    BlockTable table;
    const auto listed = blocks.first(std::min(kBlocksPerLaunch, blocks.size()));
    std::copy(listed.begin(), listed.end(), table.at);
    std::int64_t largest = 0;
    for (const BlockCopy& block : listed) {
      SPOTLIGHT_REQUIRE(block.rows <= 1 || block.rows * block.size <= UINT32_MAX, "a block of more than 2^32 elements");
      largest = std::max(largest, block.rows * block.size);
    }
    const auto count = static_cast<std::int64_t>(listed.size());
    // One 16-byte unit a thread, as long as that does not make too many blocks.
    const std::int64_t parts = std::min<std::int64_t>(BlocksFor(largest, kWide * kThreads), kMostGridBlocks / count);
    Launch(CopyBlocksKernel<Element>, dim3(static_cast<unsigned>(parts), static_cast<unsigned>(count)), kThreads, 0,
           table, static_cast<const Element*>(from), static_cast<Element*>(to));
  }
}

}  // namespace

void CopyBlocks(std::span<const BlockCopy> blocks, ConstActivations from, Activations to) {
  SPOTLIGHT_REQUIRE(from.type == to.type, "blocks of two element types");
  if (from.type == ElementType::kBf16) {
    CopyAll<std::uint16_t>(blocks, from.data, to.data);
  } else {
    CopyAll<std::uint32_t>(blocks, from.data, to.data);
  }
}

}  // namespace spotlight::cuda
