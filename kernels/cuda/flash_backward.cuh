// Flash attention, backward (Dao et al., arXiv:2205.14135, Algorithm 4), in three kernels without atomics: every
// number is summed by one thread in a fixed order, at the price of computing S and dO V^T twice.
//
//   FlashStatistics      delta = rows of dO . O; with the forward's lse in powers of 2, one pair for each query
//   FlashQueryGradient   a block has some queries, and for each tile of keys in order:
//                          P = exp(S - lse), dS = P (dO V^T - delta), dQ += dS K
//   FlashKeyGradient     a block has some keys, and for each tile of queries in order, all transposed:
//                          P^T = exp(K Q^T - lse), dS^T = P^T (V dO^T - delta), dV += P^T dO, dK += dS^T Q
//
// S = Q K^T / sqrt(D). Tiles are loaded into one of two buffers while the other is used. Without a gradient of the text
// output its queries contribute exactly nothing: queries begin at the image.
#pragma once

#include <cstdint>

#include "kernels/cuda/flash_head.cuh"
#include "kernels/cuda/flash_tiles.cuh"
#include "kernels/cuda/launch.hpp"

namespace spotlight::cuda {

// What a block does at a time: 16 kWarps rows against tiles of kKeys or kQueries rows. The gradients of keys and values
// take so many registers that the scores of 128-number heads get half the columns.
template <typename Element, int kDepth>
struct BackwardTiling {
  static constexpr bool kIsFp32 = std::is_same_v<Element, float>;
  static constexpr int kWarps = kIsFp32 ? 4 : 8, kThreads = 32 * kWarps, kRows = 16 * kWarps;
  static constexpr int kKeys = kIsFp32 ? 32 : 64, kQueries = kDepth == 128 ? kKeys / 2 : kKeys;
  static constexpr int kRowBytes = Tile<Element, kDepth>::kRowBytes;
  static constexpr int kQueryGradientBytes = (2 * kRows + 4 * kKeys) * kRowBytes;
  static constexpr int kKeyGradientTileBytes = (2 * kRows + 4 * kQueries) * kRowBytes;
  static constexpr int kKeyGradientBytes = kKeyGradientTileBytes + 2 * kQueries * static_cast<int>(sizeof(float2));
};

// Attention layout but out_*, dout_*: rows of H * D numbers. dout_text null: no gradient. statistics: as q with D = 1;
// x: log2(e) lse, y: delta; of queries with a gradient.
template <typename Element>
struct BackwardArrays {
  const Element *q, *k, *v;
  const std::uint8_t* text_mask;
  const Element *out_text, *out_image;
  const float* lse;
  const Element *dout_text, *dout_image;
  float2* statistics;
  Element *dq, *dk, *dv;
};

// The first query with a gradient.
template <typename Element>
__device__ __forceinline__ int FirstQuery(const FlashHead& head, const BackwardArrays<Element>& arrays) {
  return arrays.dout_text == nullptr ? head.text : 0;
}

__device__ __forceinline__ float2 LoadPair(const float* from) { return make_float2(from[0], from[1]); }
__device__ __forceinline__ float2 LoadPair(const Bfloat16* from) {
  const std::uint32_t pair = *reinterpret_cast<const std::uint32_t*>(from);
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

constexpr int kStatisticsWarps = 8;

// A warp a query. Also sets dq of queries without a gradient to 0. Grid: (ceil(longest sample / warps), heads,
// samples).
template <typename Element>
__global__ void __launch_bounds__(32 * kStatisticsWarps)
    FlashStatistics(const __grid_constant__ FlashShape shape, const BackwardArrays<Element> arrays) {
  const FlashHead head(shape, arrays.text_mask);
  const int query = static_cast<int>(blockIdx.x) * kStatisticsWarps + WarpOfBlock();
  if (query >= head.tokens) return;
  if (query < FirstQuery(head, arrays)) {
    Element* dq = arrays.dq + (head.row + query) * shape.head_size;
    for (int d = LaneOfWarp(); d < shape.head_size; d += 32) dq[d] = Element{};
    return;
  }
  const Element* out = head.OutputRow(shape, query, arrays.out_text, arrays.out_image);
  const Element* dout = head.OutputRow(shape, query, arrays.dout_text, arrays.dout_image);
  float sum = 0.0f;
  for (int d = 2 * LaneOfWarp(); d < shape.head_size; d += 64) {
    const float2 a = LoadPair(out + d), b = LoadPair(dout + d);
    sum = __fmaf_rn(a.y, b.y, __fmaf_rn(a.x, b.x, sum));
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (LaneOfWarp() == 0) {
    arrays.statistics[head.row + query] = make_float2(kLog2E * arrays.lse[head.row + query], sum);
  }
}

// Grid: (tiles of the longest sample, heads, samples).
template <typename Element, int kDepth>
__global__ void __launch_bounds__(BackwardTiling<Element, kDepth>::kThreads)
    FlashQueryGradient(const __grid_constant__ FlashShape shape, const BackwardArrays<Element> arrays) {
  using Tiling = BackwardTiling<Element, kDepth>;
  using Rows = Tile<Element, kDepth>;
  constexpr int kKeys = Tiling::kKeys;
  const FlashHead head(shape, arrays.text_mask);
  const int first = FirstQuery(head, arrays) + static_cast<int>(blockIdx.x) * Tiling::kRows;
  if (first >= head.tokens) return;
  const int size = shape.head_size;
  const Element* q = arrays.q + head.row * size;
  const Element* k = arrays.k + head.row * size;
  const Element* v = arrays.v + head.row * size;

  auto* memory = SharedMemory<Element>();
  const Rows queries{memory}, douts{memory + Tiling::kRows * kDepth};
  // keys, values; keys, values
  const auto buffer = [&](int tile) { return Rows{memory + (2 * Tiling::kRows + tile * kKeys) * kDepth}; };
  AsyncCopies copies;
  const auto load_keys = [&](int key) {
    const std::uint64_t visible = head.VisibleKeys<kKeys>(key);
    const int parity = key / kKeys % 2;
    LoadRows<kKeys, Tiling::kThreads>(copies, buffer(2 * parity), size, shape.wide, k,
                                      [&](int r) { return visible >> r & 1 ? k + (key + r) * size : nullptr; });
    LoadRows<kKeys, Tiling::kThreads>(copies, buffer(2 * parity + 1), size, shape.wide, v,
                                      [&](int r) { return visible >> r & 1 ? v + (key + r) * size : nullptr; });
  };
  LoadRows<Tiling::kRows, Tiling::kThreads>(copies, queries, size, shape.wide, q, [&](int r) {
    return first + r < head.tokens ? q + (first + r) * size : nullptr;
  });
  LoadRows<Tiling::kRows, Tiling::kThreads>(copies, douts, size, shape.wide, q, [&](int r) {
    return first + r < head.tokens ? head.OutputRow(shape, first + r, arrays.dout_text, arrays.dout_image) : nullptr;
  });
  load_keys(0);

  const int row = WarpOfBlock() * 16;
  const bool busy = first + row < head.tokens;
  float2 statistics[2];
  for (int half = 0; half < 2; ++half) {
    const int query = first + row + 8 * half + LaneOfWarp() / 4;
    statistics[half] = query < head.tokens ? arrays.statistics[head.row + query] : make_float2(0.0f, 0.0f);
  }
  const float scale = shape.scale * kLog2E;
  float dq[1][kDepth / 8][4] = {};
  for (int key = 0; key < head.tokens; key += kKeys) {
    copies.Wait();
    __syncthreads();
    if (key + kKeys < head.tokens) load_keys(key + kKeys);
    if (!busy) continue;
    const Rows keys = buffer(key / kKeys % 2 * 2), values = buffer(key / kKeys % 2 * 2 + 1);
    float scores[1][kKeys / 8][4], gradients[1][kKeys / 8][4];
    Scores(queries, row, keys, scores);
    HideKeys(head.VisibleKeys<kKeys>(key), scores);
    Scores(douts, row, values, gradients);
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      for (int r = 0; r < 4; ++r) {
        const float p = Exp2(__fmaf_rn(scores[0][j][r], scale, -statistics[r / 2].x));
        scores[0][j][r] = p * (gradients[0][j][r] - statistics[r / 2].y);
      }
    }
    Mix(scores, keys, dq);
  }
  if (!busy) return;
  const float factor[1][2] = {{shape.scale, shape.scale}};
  StoreRows(Rows{queries.data + row * kDepth}, dq, factor, size, shape.wide, [&](int r) {
    return first + row + r < head.tokens ? arrays.dq + (head.row + first + row + r) * size : nullptr;
  });
}

// Grid: (tiles of the longest sample, heads, samples).
template <typename Element, int kDepth>
__global__ void __launch_bounds__(BackwardTiling<Element, kDepth>::kThreads)
    FlashKeyGradient(const __grid_constant__ FlashShape shape, const BackwardArrays<Element> arrays) {
  using Tiling = BackwardTiling<Element, kDepth>;
  using Rows = Tile<Element, kDepth>;
  constexpr int kQueries = Tiling::kQueries;
  const FlashHead head(shape, arrays.text_mask);
  const int first = static_cast<int>(blockIdx.x) * Tiling::kRows;
  if (first >= head.tokens) return;
  const int size = shape.head_size;
  const Element* q = arrays.q + head.row * size;
  const Element* k = arrays.k + head.row * size;
  const Element* v = arrays.v + head.row * size;
  const float2* statistics = arrays.statistics + head.row;

  auto* memory = SharedMemory<Element>();
  const Rows keys{memory}, values{memory + Tiling::kRows * kDepth};
  // queries, dO; queries, dO
  const auto buffer = [&](int tile) { return Rows{memory + (2 * Tiling::kRows + tile * kQueries) * kDepth}; };
  auto* pairs = reinterpret_cast<float2*>(memory + Tiling::kKeyGradientTileBytes / sizeof(Element));  // of both buffers
  AsyncCopies copies;
  const auto load_queries = [&](int query, int parity) {
    LoadRows<kQueries, Tiling::kThreads>(copies, buffer(2 * parity), size, shape.wide, q, [&](int r) {
      return query + r < head.tokens ? q + (query + r) * size : nullptr;
    });
    LoadRows<kQueries, Tiling::kThreads>(copies, buffer(2 * parity + 1), size, shape.wide, q, [&](int r) {
      return query + r < head.tokens ? head.OutputRow(shape, query + r, arrays.dout_text, arrays.dout_image) : nullptr;
    });
    const int r = static_cast<int>(threadIdx.x);
    const bool present = query + r < head.tokens;
    if (r < kQueries) {
      copies.Copy<8>(pairs + parity * kQueries + r, statistics + (present ? query + r : 0), present);
    }
  };
  // Rows of keys that no query sees are zeros. What they receive is not written, and nothing else comes from them.
  LoadRows<Tiling::kRows, Tiling::kThreads>(copies, keys, size, shape.wide, k, [&](int r) {
    return head.Sees(first + r) ? k + (first + r) * size : nullptr;
  });
  LoadRows<Tiling::kRows, Tiling::kThreads>(copies, values, size, shape.wide, v, [&](int r) {
    return head.Sees(first + r) ? v + (first + r) * size : nullptr;
  });
  const int begin = FirstQuery(head, arrays);
  if (begin < head.tokens) load_queries(begin, 0);

  const int row = WarpOfBlock() * 16, t = LaneOfWarp() % 4;
  const bool busy = first + row < head.tokens;
  const float scale = shape.scale * kLog2E;
  float dk[1][kDepth / 8][4] = {}, dv[1][kDepth / 8][4] = {};
  int parity = 0;
  for (int query = begin; query < head.tokens; query += kQueries, parity ^= 1) {
    copies.Wait();
    __syncthreads();
    if (query + kQueries < head.tokens) load_queries(query + kQueries, parity ^ 1);
    if (!busy) continue;
    const Rows queries = buffer(2 * parity), douts = buffer(2 * parity + 1);
    float scores[1][kQueries / 8][4], gradients[1][kQueries / 8][4];
    Scores(keys, row, queries, scores);
    Scores(values, row, douts, gradients);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j) {
      // Queries beyond the last are zeros, in `pairs` too: they add p * 0.
      const auto two = *reinterpret_cast<const float4*>(pairs + parity * kQueries + 8 * j + 2 * t);
      for (int r = 0; r < 4; ++r) {
        const float p = Exp2(__fmaf_rn(scores[0][j][r], scale, -(r % 2 == 0 ? two.x : two.z)));
        scores[0][j][r] = p;
        gradients[0][j][r] = p * (gradients[0][j][r] - (r % 2 == 0 ? two.y : two.w));
      }
    }
    Mix(scores, douts, dv);
    Mix(gradients, queries, dk);
  }
  copies.Wait();
  __syncthreads();
  if (!busy) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (head.Sees(first + row + 8 * half + LaneOfWarp() / 4)) continue;
#pragma unroll
    for (int d = 0; d < kDepth / 8; ++d) {
      for (int r = 2 * half; r < 2 * half + 2; ++r) dk[0][d][r] = dv[0][d][r] = 0.0f;
    }
  }
  const float dk_factor[1][2] = {{shape.scale, shape.scale}}, dv_factor[1][2] = {{1.0f, 1.0f}};
  StoreRows(Rows{keys.data + row * kDepth}, dk, dk_factor, size, shape.wide, [&](int r) {
    return first + row + r < head.tokens ? arrays.dk + (head.row + first + row + r) * size : nullptr;
  });
  StoreRows(Rows{values.data + row * kDepth}, dv, dv_factor, size, shape.wide, [&](int r) {
    return first + row + r < head.tokens ? arrays.dv + (head.row + first + row + r) * size : nullptr;
  });
}

}  // namespace spotlight::cuda
