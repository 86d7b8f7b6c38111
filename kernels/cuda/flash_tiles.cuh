// What the flash-attention kernels are made of: tiles of rows in shared memory, and the two products of a warp.
//
// A tile holds rows of kDepth numbers, fp32 or bf16 (zeros beyond the head size). A warp's results are in registers as
// sums[kRowTiles][columns / 8][4] in the layout of mma's c: the warp owns 16 kRowTiles rows; g = lane / 4, t = lane %
// 4:
//
//   sums[i][j][0 .. 3]: rows 16 i + g, g, g + 8, g + 8, columns 8 j + 2t, 2t + 1, 2t, 2t + 1
//
//   Scores   sums = A B^T      A: rows of a tile, B: all rows of a tile          (Q K^T, dO V^T and their transposes)
//   Mix      sums += W B       W: results of Scores, B: as many rows of a tile   (P V, dS K, P^T dO, dS^T Q)
//
// bf16: by tensor cores, W rounded to bf16; fp32: by fused multiply-adds, in the same layout. A number's order of
// additions is fixed.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/bfloat16.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/mma.cuh"

namespace spotlight::cuda {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

__device__ __forceinline__ int WarpOfBlock() { return static_cast<int>(threadIdx.x) / 32; }
__device__ __forceinline__ int LaneOfWarp() { return static_cast<int>(threadIdx.x) % 32; }

// Rows in shared memory, in chunks of 16 bytes. A row's chunks are permuted within groups of eight by the row's number,
// so that the same chunk of eight rows that follow each other lies in different banks.
template <typename Element, int kDepth>
struct Tile {
  static_assert(kDepth % 64 == 0);
  static constexpr int kPerChunk = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr int kRowBytes = kDepth * static_cast<int>(sizeof(Element));

  Element* data;

  __device__ __forceinline__ Element* Chunk(int row, int chunk) const {
    return data + row * kDepth + (chunk ^ (row & 7)) * kPerChunk;
  }
};

// Begins to load kRows rows, by all kThreads of the block. row(r) is where row r lies, or null for zeros; any: an
// address that may stand for a row of zeros. size: numbers in a row, even; the rest of the depth becomes 0. wide: all
// rows are aligned to 16 bytes and so is their size.
template <int kRows, int kThreads, typename Element, int kDepth, typename Row>
__device__ __forceinline__ void LoadRows(AsyncCopies& copies, Tile<Element, kDepth> tile, int size, bool wide,
                                         const Element* any, const Row& row) {
  // A strip of the rows' chunks at a time, a chunk a thread.
  using Shape = Tile<Element, kDepth>;
  constexpr int kStrips = Shape::kChunks % 3 == 0 ? 3 : 1, kStrip = Shape::kChunks / kStrips;
  constexpr int kRowsAtOnce = kThreads / kStrip, kPerWord = 4 / static_cast<int>(sizeof(Element));
  static_assert(kThreads % kStrip == 0 && kRows % kRowsAtOnce == 0);
  const int first_row = static_cast<int>(threadIdx.x) / kStrip;
  for (int chunk = static_cast<int>(threadIdx.x) % kStrip; chunk < Shape::kChunks; chunk += kStrip) {
    const int column = chunk * Shape::kPerChunk;
    if (wide) {
#pragma unroll 2
      for (int r = first_row; r < first_row + kRows; r += kRowsAtOnce) {
        const Element* from = row(r);
        const bool present = from != nullptr && column < size;
        copies.Copy<16>(tile.Chunk(r, chunk), present ? from + column : any, present);
      }
      continue;
    }
#pragma unroll 1
    for (int r = first_row; r < kRows; r += kRowsAtOnce) {
      const Element* from = row(r);
      Element* to = tile.Chunk(r, chunk);
#pragma unroll 1
      for (int i = 0; i < Shape::kPerChunk; i += kPerWord) {
        const bool present = from != nullptr && column + i < size;
        copies.Copy<4>(to + i, present ? from + column + i : any, present);
      }
    }
  }
}

// Bytes from a row's beginning to its chunk fixed + bit; flip = bit ^ (row & 7), `fixed` even, bit 0 or 1. The same
// place as Tile::Chunk() has, with the part that lanes differ in apart: few addresses serve a whole tile.
__device__ __forceinline__ int ChunkBytes(int fixed, int flip) { return 16 * ((fixed & ~7) + ((fixed & 7) ^ flip)); }

// sums = A B^T: A are the rows [row, row + 16 kRowTiles) of `a`, row a multiple of 8, B the rows [0, 8 kColumnTiles) of
// `b`.
template <int kRowTiles, int kColumnTiles, int kDepth>
__device__ __forceinline__ void Scores(Tile<Bfloat16, kDepth> a, int row, Tile<Bfloat16, kDepth> b,
                                       float (&sums)[kRowTiles][kColumnTiles][4]) {
  static_assert(kColumnTiles % 2 == 0);
  constexpr int kRowBytes = Tile<Bfloat16, kDepth>::kRowBytes;
  const int lane = LaneOfWarp(), flip = lane % 8;
  const SharedAddress left_row = ToShared(a.data) + (row + lane % 16) * kRowBytes;
  const SharedAddress right_row = ToShared(b.data) + (lane / 16 * 8 + lane % 8) * kRowBytes;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      for (int r = 0; r < 4; ++r) sums[i][j][r] = 0.0f;
    }
  }
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    std::uint32_t left[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      LoadMatrices(left_row + 16 * i * kRowBytes + ChunkBytes(2 * step, (lane / 16) ^ flip), left[i]);
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; j += 2) {
      std::uint32_t right[4];
      LoadMatrices(right_row + 8 * j * kRowBytes + ChunkBytes(2 * step, (lane / 8 % 2) ^ flip), right);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        MultiplyAdd(left[i], right[0], right[1], sums[i][j]);
        MultiplyAdd(left[i], right[2], right[3], sums[i][j + 1]);
      }
    }
  }
}

__device__ __forceinline__ float AddDot(float sum, float4 a, float4 b) {
  return __fmaf_rn(a.w, b.w, __fmaf_rn(a.z, b.z, __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, sum))));
}

template <int kRowTiles, int kColumnTiles, int kDepth>
__device__ __forceinline__ void Scores(Tile<float, kDepth> a, int row, Tile<float, kDepth> b,
                                       float (&sums)[kRowTiles][kColumnTiles][4]) {
  const int g = LaneOfWarp() / 4, t = LaneOfWarp() % 4;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      for (int r = 0; r < 4; ++r) sums[i][j][r] = 0.0f;
    }
  }
#pragma unroll 1
  for (int chunk = 0; chunk < kDepth / 4; ++chunk) {
    float4 left[kRowTiles][2];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      for (int half = 0; half < 2; ++half) {
        left[i][half] = *reinterpret_cast<const float4*>(a.Chunk(row + 16 * i + 8 * half + g, chunk));
      }
    }
#pragma unroll
    for (int j = 0; j < kColumnTiles; ++j) {
      for (int c = 0; c < 2; ++c) {
        const auto right = *reinterpret_cast<const float4*>(b.Chunk(8 * j + 2 * t + c, chunk));
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          sums[i][j][c] = AddDot(sums[i][j][c], left[i][0], right);
          sums[i][j][2 + c] = AddDot(sums[i][j][2 + c], left[i][1], right);
        }
      }
    }
  }
}

// sums += W B: B are the rows [0, 8 kColumnTiles) of `b`.
template <int kRowTiles, int kColumnTiles, int kDepth>
__device__ __forceinline__ void Mix(const float (&weights)[kRowTiles][kColumnTiles][4], Tile<Bfloat16, kDepth> b,
                                    float (&sums)[kRowTiles][kDepth / 8][4]) {
  static_assert(kColumnTiles % 2 == 0);
  constexpr int kRowBytes = Tile<Bfloat16, kDepth>::kRowBytes;
  const int lane = LaneOfWarp(), flip = (lane / 16) ^ (lane % 8);
  const SharedAddress right_row = ToShared(b.data) + lane % 16 * kRowBytes;
#pragma unroll
  for (int j = 0; j < kColumnTiles; j += 2) {
    std::uint32_t left[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      for (int r = 0; r < 4; ++r) {
        const float(&pair)[4] = weights[i][j + r / 2];
        left[i][r] = PackBfloat16(pair[r % 2 * 2], pair[r % 2 * 2 + 1]);
      }
    }
#pragma unroll
    for (int d = 0; d < kDepth / 8; d += 2) {
      std::uint32_t right[4];
      LoadMatricesTransposed(right_row + 8 * j * kRowBytes + ChunkBytes(d, flip), right);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        MultiplyAdd(left[i], right[0], right[1], sums[i][d]);
        MultiplyAdd(left[i], right[2], right[3], sums[i][d + 1]);
      }
    }
  }
}

template <int kRowTiles, int kColumnTiles, int kDepth>
__device__ __forceinline__ void Mix(const float (&weights)[kRowTiles][kColumnTiles][4], Tile<float, kDepth> b,
                                    float (&sums)[kRowTiles][kDepth / 8][4]) {
  const int t = LaneOfWarp() % 4;
#pragma unroll 1
  for (int owner = 0; owner < 4; ++owner) {
#pragma unroll
    for (int k = 0; k < 2 * kColumnTiles; ++k) {
      float left[kRowTiles][2];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        for (int half = 0; half < 2; ++half) {
          left[i][half] = __shfl_sync(0xffffffffu, weights[i][k / 2][2 * half + k % 2], owner, 4);
        }
      }
#pragma unroll
      for (int d = 0; d < kDepth / 8; ++d) {
        const float* pair = b.Chunk(k / 2 * 8 + 2 * owner + k % 2, 2 * d + t / 2) + t % 2 * 2;
        const auto right = *reinterpret_cast<const float2*>(pair);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          sums[i][d][0] = __fmaf_rn(left[i][0], right.x, sums[i][d][0]);
          sums[i][d][1] = __fmaf_rn(left[i][0], right.y, sums[i][d][1]);
          sums[i][d][2] = __fmaf_rn(left[i][1], right.x, sums[i][d][2]);
          sums[i][d][3] = __fmaf_rn(left[i][1], right.y, sums[i][d][3]);
        }
      }
    }
  }
}

// The sum, and the maximum, over the four lanes that share the rows of a result.
__device__ __forceinline__ float SumOfRow(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ __forceinline__ float MaxOfRow(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// Writes the warp's results, element by element times factor[i][half], to rows of `size` numbers through `tile`,
// the warp's own shared memory. to(r): where the warp's row r goes, or null. wide: as for LoadRows.
template <int kRowTiles, typename Element, int kDepth, typename To>
__device__ __forceinline__ void StoreRows(Tile<Element, kDepth> tile, const float (&sums)[kRowTiles][kDepth / 8][4],
                                          const float (&factor)[kRowTiles][2], int size, bool wide, const To& to) {
  using Shape = Tile<Element, kDepth>;
  const int lane = LaneOfWarp(), g = lane / 4, t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int d = 0; d < kDepth / 8; ++d) {
        const int column = 8 * d + 2 * t;
        Element* pair = tile.Chunk(16 * i + 8 * half + g, column / Shape::kPerChunk) + column % Shape::kPerChunk;
        const float low = sums[i][d][2 * half] * factor[i][half], high = sums[i][d][2 * half + 1] * factor[i][half];
        if constexpr (std::is_same_v<Element, float>) {
          *reinterpret_cast<float2*>(pair) = make_float2(low, high);
        } else {
          *reinterpret_cast<std::uint32_t*>(pair) = PackBfloat16(low, high);
        }
      }
    }
  }
  __syncwarp();
  for (int place = lane; place < 16 * kRowTiles * Shape::kChunks; place += 32) {
    const int r = place / Shape::kChunks, chunk = place % Shape::kChunks, column = chunk * Shape::kPerChunk;
    Element* destination = to(r);
    if (destination == nullptr || column >= size) continue;
    const Element* values = tile.Chunk(r, chunk);
    if (wide) {
      *reinterpret_cast<uint4*>(destination + column) = *reinterpret_cast<const uint4*>(values);
    } else {
      for (int c = 0; c < Shape::kPerChunk && column + c < size; ++c) destination[column + c] = values[c];
    }
  }
}

}  // namespace spotlight::cuda
