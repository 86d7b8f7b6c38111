// Where one head of one sample lies in the arrays of kernels/attention.hpp, for the flash-attention kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/batch_rows.cuh"
#include "kernels/cuda/launch.hpp"

namespace spotlight::cuda {

// A launch's samples and sizes, by value. Grids have the head in y and the sample in z.
struct FlashShape {
  BatchRows text, image;
  int heads, head_size;
  float scale;  // 1 / sqrt(D)
  bool wide;    // all rows are aligned to 16 bytes
};

// The head of the calling block.
struct FlashHead {
  int index, text, tokens;   // T and N of the sample
  int text_row, image_row;   // of the sample in both streams
  std::int64_t row;          // of the head's first token in attention layout
  const std::uint8_t* mask;  // [T] of the sample, or null

  __device__ __forceinline__ FlashHead(const FlashShape& shape, const std::uint8_t* text_mask) {
    const unsigned sample = blockIdx.z;
    index = static_cast<int>(blockIdx.y);
    text_row = shape.text.first[sample];
    image_row = shape.image.first[sample];
    text = shape.text.first[sample + 1] - text_row;
    tokens = text + shape.image.first[sample + 1] - image_row;
    row = static_cast<std::int64_t>(text_row + image_row) * shape.heads + static_cast<std::int64_t>(index) * tokens;
    mask = text_mask == nullptr ? nullptr : text_mask + text_row;
  }

  __device__ __forceinline__ bool Sees(int key) const {
    return key < tokens && (mask == nullptr || key >= text || mask[key] != 0);
  }

  // Bit i: key `first` + i is there and not masked. The whole warp calls.
  template <int kKeys>
  __device__ __forceinline__ std::uint64_t VisibleKeys(int first) const {
    static_assert(kKeys <= 64);
    if (first + kKeys <= tokens && (mask == nullptr || first >= text)) return ~0ull;
    const int key = first + static_cast<int>(threadIdx.x) % 32;
    std::uint64_t visible = __ballot_sync(0xffffffffu, Sees(key));
    if constexpr (kKeys > 32) {
      visible |= static_cast<std::uint64_t>(__ballot_sync(0xffffffffu, Sees(key + 32))) << 32;
    }
    return visible;
  }

  // Where the head's part of a token lies in rows of H * D numbers.
  template <typename Element>
  __device__ __forceinline__ Element* OutputRow(const FlashShape& shape, int token, Element* in_text,
                                                Element* in_image) const {
    const std::int64_t stream_row = token < text ? text_row + token : image_row + token - text;
    return (token < text ? in_text : in_image) + (stream_row * shape.heads + index) * shape.head_size;
  }
};

// scores of keys that are not visible become minus infinity.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void HideKeys(std::uint64_t visible, float (&scores)[kRowTiles][kColumnTiles][4]) {
  if (visible == ~0ull) return;
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
    for (int c = 0; c < 2; ++c) {
      if (visible >> (8 * j + 2 * t + c) & 1) continue;
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) scores[i][j][c] = scores[i][j][2 + c] = -INFINITY;
    }
  }
}

}  // namespace spotlight::cuda
