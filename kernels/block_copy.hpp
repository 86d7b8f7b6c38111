// Copies of many rectangular blocks at once: packing and unpacking of messages.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/activations.hpp"

namespace spotlight {

// `rows` rows of `size` elements: row i goes from from[from_offset + i * from_stride] to to[to_offset + i * to_stride].
struct BlockCopy {
  std::int64_t from_offset = 0, to_offset = 0;
  std::int64_t rows = 0, size = 0;
  std::int64_t from_stride = 0, to_stride = 0;

  BlockCopy Reversed() const { return {to_offset, from_offset, rows, size, to_stride, from_stride}; }
};

// The blocks' destinations do not overlap. Both arrays have one element type.
void CopyBlocks(std::span<const BlockCopy> blocks, ConstActivations from, Activations to);

}  // namespace spotlight
