// Flash attention, forward: a block computes kWarps * 16 * kRowTiles queries of one head of one sample (Dao et al.,
// arXiv:2205.14135, Algorithm 1, with the division by the sum at the end as in arXiv:2307.08691).
//
//   for each tile of keys in order:  S = Q K^T,  m' = max(m, rows of S),  P = exp(S - m'),
//                                    sum = exp(m - m') sum + rows of P,  O = exp(m - m') O + P V
//   out = O / sum,  lse = m + log(sum)
//
// One buffer each for K and V: the tile of V arrives while S is computed, the next tile of K while O is.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/cuda/flash_head.cuh"
#include "kernels/cuda/flash_tiles.cuh"
#include "kernels/cuda/launch.hpp"

namespace spotlight::cuda {

// What a block does at a time; so that sums fit into registers, and two blocks of bf16 into a multiprocessor. Of heads
// beyond 128 numbers a block makes a slice of the output, from all of S.
template <typename Element, int kDepth>
struct ForwardTiling {
  static constexpr bool kIsFp32 = std::is_same_v<Element, float>;
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kSlice = kDepth > 128 ? 128 : kDepth, kSlices = kDepth / kSlice;
  static constexpr int kRowTiles = kIsFp32 || kSlices > 1 ? 1 : 2;
  static constexpr int kWarpQueries = 16 * kRowTiles, kQueries = kWarps * kWarpQueries, kKeys = kIsFp32 ? 32 : 64;
  using Rows = Tile<Element, kDepth>;       // Q, K
  using SliceRows = Tile<Element, kSlice>;  // V, O
  static constexpr int kSharedBytes = (kQueries + kKeys) * Rows::kRowBytes + kKeys * SliceRows::kRowBytes;
};

// q, k, v in attention layout; out_* rows of H * D numbers; out_text null: queries begin at the image.
template <typename Element>
struct ForwardArrays {
  const Element *q, *k, *v;
  const std::uint8_t* text_mask;
  Element *out_text, *out_image;
  float* lse;
};

// Turns scores into P = exp2(scale S - shift) and folds them into the rows' sums; `out` is brought to the same shift.
// top: the shift of each row, minus infinity before its first visible key. It is the maximum so far or up to kLag less,
// so that `out` needs to be multiplied seldom: P is at most 2^kLag, and every row decides for itself.
template <int kRowTiles, int kColumnTiles, int kDepthTiles>
__device__ __forceinline__ void SoftmaxStep(float scale, float (&scores)[kRowTiles][kColumnTiles][4],
                                            float (&top)[kRowTiles][2], float (&sum)[kRowTiles][2],
                                            float (&out)[kRowTiles][kDepthTiles][4]) {
  constexpr float kLag = 8.0f;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = -INFINITY;
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        most = fmaxf(most, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
      }
      most = MaxOfRow(most) * scale;
      const float old = top[i][half];
      if (most > old + kLag) top[i][half] = most;
      const float shift = top[i][half] == -INFINITY ? 0.0f : top[i][half];
      const float rescale = Exp2(old - shift);
      if (__any_sync(0xffffffffu, rescale != 1.0f)) {
        sum[i][half] *= rescale;
#pragma unroll
        for (int d = 0; d < kDepthTiles; ++d) {
          for (int r = 2 * half; r < 2 * half + 2; ++r) out[i][d][r] *= rescale;
        }
      }
#pragma unroll
      for (int j = 0; j < kColumnTiles; ++j) {
        for (int r = 2 * half; r < 2 * half + 2; ++r) {
          scores[i][j][r] = Exp2(__fmaf_rn(scores[i][j][r], scale, -shift));
          sum[i][half] += scores[i][j][r];
        }
      }
    }
  }
}

// Grid: (slices of the tiles of the longest sample, heads, samples).
template <typename Element, int kDepth>
__global__ void __launch_bounds__(ForwardTiling<Element, kDepth>::kThreads)
    FlashForward(const __grid_constant__ FlashShape shape, const ForwardArrays<Element> arrays) {
  using Tiling = ForwardTiling<Element, kDepth>;
  constexpr int kRowTiles = Tiling::kRowTiles, kKeys = Tiling::kKeys, kThreads = Tiling::kThreads;
  const FlashHead head(shape, arrays.text_mask);
  const int tile = static_cast<int>(blockIdx.x) / Tiling::kSlices,
            slice = static_cast<int>(blockIdx.x) % Tiling::kSlices;
  const int first = (arrays.out_text == nullptr ? head.text : 0) + tile * Tiling::kQueries;
  const int size = shape.head_size, begin = slice * Tiling::kSlice;
  if (first >= head.tokens || begin >= size) return;
  const Element* q = arrays.q + head.row * size;
  const Element* k = arrays.k + head.row * size;
  const Element* v = arrays.v + head.row * size + begin;

  auto* memory = SharedMemory<Element>();
  const typename Tiling::Rows queries{memory}, keys{memory + Tiling::kQueries * kDepth};
  const typename Tiling::SliceRows values{keys.data + kKeys * kDepth};
  AsyncCopies copies;
  const auto load_keys = [&](int key) {
    const std::uint64_t visible = head.VisibleKeys<kKeys>(key);
    LoadRows<kKeys, kThreads>(copies, keys, size, shape.wide, k,
                              [&](int r) { return visible >> r & 1 ? k + (key + r) * size : nullptr; });
  };
  LoadRows<Tiling::kQueries, kThreads>(copies, queries, size, shape.wide, q, [&](int r) {
    return first + r < head.tokens ? q + (first + r) * size : nullptr;
  });
  load_keys(0);

  const int row = WarpOfBlock() * Tiling::kWarpQueries, g = LaneOfWarp() / 4, t = LaneOfWarp() % 4;
  const bool busy = first + row < head.tokens;
  float out[kRowTiles][Tiling::kSlice / 8][4] = {}, top[kRowTiles][2], sum[kRowTiles][2] = {};
  for (int i = 0; i < kRowTiles; ++i) top[i][0] = top[i][1] = -INFINITY;
  for (int key = 0; key < head.tokens; key += kKeys) {
    float scores[kRowTiles][kKeys / 8][4];
    copies.Wait();
    __syncthreads();
    const std::uint64_t visible = head.VisibleKeys<kKeys>(key);
    LoadRows<kKeys, kThreads>(copies, values, size - begin, shape.wide, v,
                              [&](int r) { return visible >> r & 1 ? v + (key + r) * size : nullptr; });
    if (busy) Scores(queries, row, keys, scores);
    copies.Wait();
    __syncthreads();
    if (key + kKeys < head.tokens) load_keys(key + kKeys);
    if (!busy) continue;
    HideKeys(head.VisibleKeys<kKeys>(key), scores);
    SoftmaxStep(shape.scale * kLog2E, scores, top, sum, out);
    Mix(scores, values, out);
  }
  if (!busy) return;

  float factor[kRowTiles][2];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    for (int half = 0; half < 2; ++half) {
      const float total = SumOfRow(sum[i][half]);
      factor[i][half] = 1.0f / total;
      const int query = first + row + 16 * i + 8 * half + g;
      if (slice == 0 && t == 0 && query < head.tokens) {
        arrays.lse[head.row + query] = kLn2 * top[i][half] + logf(total);
      }
    }
  }
  const typename Tiling::SliceRows own{queries.data + row * kDepth};
  StoreRows(own, out, factor, size - begin, shape.wide, [&](int r) -> Element* {
    const int query = first + row + r;
    if (query >= head.tokens) return nullptr;
    return head.OutputRow(shape, query, arrays.out_text, arrays.out_image) + begin;
  });
}

}  // namespace spotlight::cuda
