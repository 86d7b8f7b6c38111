// Small dense products and transposes on rows of lanes, for kernels whose operands are cut into cache-sized blocks.
//
// A lane is one column of a row-major block whose width is a multiple of 8. In C = A B every element of C is one chain
// of fused multiply-adds, in the order of the depth, started from zero or from C: its bits do not depend on the tile
// or the vector width that computed it, nor on where a longer depth was cut into calls.
// GCC's vector extensions only: the code compiles for any instruction set, and is written for 32 registers of 16 lanes.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

namespace spotlight {

// Without AVX GCC warns that passing such vectors changed in version 4.6; they never leave one translation unit.
#pragma GCC diagnostic ignored "-Wpsabi"

typedef float Lanes8 __attribute__((vector_size(32)));
#ifdef __AVX512F__
typedef float LanesWide __attribute__((vector_size(64)));
inline constexpr int kTileRows = 12;  // 12 x 2 sums and 2 operands in 32 registers
#else
typedef float LanesWide __attribute__((vector_size(32)));
inline constexpr int kTileRows = 4;  // 4 x 3 sums and 3 operands in 16 registers
#endif

template <typename Vector>
inline Vector LoadLanes(const float* from) {
  Vector value;
  std::memcpy(&value, from, sizeof(Vector));
  return value;
}
template <typename Vector>
inline void StoreLanes(const Vector& value, float* to) {
  std::memcpy(to, &value, sizeof(Vector));
}

// a * b + c in each lane, rounded once. GCC 12 makes one instruction of it only if it is a function of its own.
template <typename Vector>
inline Vector FusedMultiplyAdd(Vector a, Vector b, Vector c) {
  Vector value;
  for (unsigned lane = 0; lane < sizeof(Vector) / sizeof(float); ++lane) {
    value[lane] = std::fma(a[lane], b[lane], c[lane]);
  }
  return value;
}

// C [kRows, lanes of kVectors vectors] (+)= A B; element (r, p) of A is a[r * a_row + p * a_depth].
template <typename Vector, int kVectors, int kRows>
void LaneTile(std::int64_t depth, const float* a, std::int64_t a_row, std::int64_t a_depth, const float* b,
              std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate) {
  constexpr int kWidth = sizeof(Vector) / sizeof(float);
  constexpr int kGroups = (kRows + 2) / 3;  // rows in threes: base, base + a_row, base + 2 a_row need few registers
  const float* group[kGroups];
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) group[g] = a + 3 * g * a_row;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = accumulate ? LoadLanes<Vector>(c + r * ldc + v * kWidth) : Vector{};
    }
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    Vector x[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) x[v] = LoadLanes<Vector>(b + v * kWidth);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const Vector w = group[r / 3][(r % 3) * a_row] - Vector{};
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sum[r][v] = FusedMultiplyAdd(w, x[v], sum[r][v]);
    }
    b += ldb;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) group[g] += a_depth;
  }
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) StoreLanes(sum[r][v], c + r * ldc + v * kWidth);
  }
}

// All rows of one panel of lanes, in tiles of nearly equal height.
template <typename Vector, int kVectors>
void LanePanel(std::int64_t rows, std::int64_t depth, const float* a, std::int64_t a_row, std::int64_t a_depth,
               const float* b, std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate) {
  constexpr auto kTiles = []<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    return std::array{&LaneTile<Vector, kVectors, kIndex + 1>...};
  }
  (std::make_integer_sequence<int, kTileRows>());
  const std::int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const std::int64_t height = tiles == 0 ? 0 : (rows + tiles - 1) / tiles;
  for (std::int64_t r = 0; r < rows; r += height) {
    kTiles[std::min(height, rows - r) - 1](depth, a + r * a_row, a_row, a_depth, b, ldb, c + r * ldc, ldc, accumulate);
  }
}

// C [rows, lanes] = A B (+ C if accumulate): B [depth, lanes] with row stride ldb, C with ldc; element (r, p) of A is
// a[r * a_row + p * a_depth]. lanes is a multiple of 8.
inline void LaneProduct(std::int64_t rows, std::int64_t lanes, std::int64_t depth, const float* a, std::int64_t a_row,
                        std::int64_t a_depth, const float* b, std::int64_t ldb, float* c, std::int64_t ldc,
                        bool accumulate) {
  constexpr std::int64_t kPanel = 2 * sizeof(LanesWide) / sizeof(float);
  std::int64_t first = 0;
  for (; lanes - first >= kPanel; first += kPanel) {
    LanePanel<LanesWide, 2>(rows, depth, a, a_row, a_depth, b + first, ldb, c + first, ldc, accumulate);
  }
  const std::int64_t rest = lanes - first;
  if (rest == 24) {
    LanePanel<Lanes8, 3>(rows, depth, a, a_row, a_depth, b + first, ldb, c + first, ldc, accumulate);
  } else if (rest == 16) {
    LanePanel<Lanes8, 2>(rows, depth, a, a_row, a_depth, b + first, ldb, c + first, ldc, accumulate);
  } else if (rest == 8) {
    LanePanel<Lanes8, 1>(rows, depth, a, a_row, a_depth, b + first, ldb, c + first, ldc, accumulate);
  }
}

// to [columns, rows] = transpose of from [rows, columns]; both sizes are multiples of 8, both blocks are dense.
inline void TransposeLanes(std::int64_t rows, std::int64_t columns, const float* from, float* to) {
  for (std::int64_t i = 0; i < rows; i += 8) {
    for (std::int64_t j = 0; j < columns; j += 8) {
      const float* source = from + i * columns + j;
      Lanes8 x[8], y[8];
      for (int r = 0; r < 8; ++r) x[r] = LoadLanes<Lanes8>(source + r * columns);
      // Three rounds of swapping: neighbours, pairs, halves.
      for (int r = 0; r < 8; r += 2) {
        y[r] = __builtin_shufflevector(x[r], x[r + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        y[r + 1] = __builtin_shufflevector(x[r], x[r + 1], 1, 9, 3, 11, 5, 13, 7, 15);
      }
      for (int r = 0; r < 8; ++r) {
        const int low = r & ~2;
        x[r] = (r & 2) == 0 ? __builtin_shufflevector(y[low], y[low + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                            : __builtin_shufflevector(y[low], y[low + 2], 2, 3, 10, 11, 6, 7, 14, 15);
      }
      for (int r = 0; r < 4; ++r) {
        StoreLanes(__builtin_shufflevector(x[r], x[r + 4], 0, 1, 2, 3, 8, 9, 10, 11), to + (j + r) * rows + i);
        StoreLanes(__builtin_shufflevector(x[r], x[r + 4], 4, 5, 6, 7, 12, 13, 14, 15), to + (j + r + 4) * rows + i);
      }
    }
  }
}

}  // namespace spotlight
