// AddTransposed (kernels/linear.hpp) and what kernels/cuda/matrix_rows.hpp declares. All of it moves memory once.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/matrix_rows.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/runtime.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostGridRows = 65535;  // of a grid's second dimension

// Blocks for each row, several rows after each other where a grid has too few.
dim3 RowGrid(std::int64_t columns, std::int64_t rows) {
  return {BlocksFor(columns, kThreads * kVector), static_cast<unsigned>(std::min(rows, kMostGridRows))};
}

__device__ __forceinline__ std::int64_t FirstColumn() {
  return (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
}

template <bool kWide>
__global__ void __launch_bounds__(kThreads)
    RoundRowsKernel(std::int64_t rows, std::int64_t columns, const float* from, std::int64_t ld_from, Bfloat16* to) {
  const std::int64_t column = FirstColumn();
  if (column >= columns) return;
  const int count = static_cast<int>(min(columns - column, static_cast<std::int64_t>(kVector)));
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float values[kVector];
    LoadValues<kWide>(from + row * ld_from + column, 0, count, values);
    StoreValues<kWide>(to + row * columns + column, 0, count, values);
  }
}

constexpr int kSumRows = 64;

// partials [blocks of rows, columns]: the sum over each block of rows.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kThreads)
    PartialSumsKernel(std::int64_t rows, std::int64_t columns, const T* x, std::int64_t ldx, float* partials) {
  const std::int64_t column = FirstColumn();
  if (column >= columns) return;
  const int count = static_cast<int>(min(columns - column, static_cast<std::int64_t>(kVector)));
  for (std::int64_t block = blockIdx.y; block * kSumRows < rows; block += gridDim.y) {
    const std::int64_t end = min((block + 1) * kSumRows, rows);
    float sums[kVector] = {};
#pragma unroll 4
    for (std::int64_t row = block * kSumRows; row < end; ++row) {
      float values[kVector];
      LoadValues<kWide>(x + row * ldx + column, 0, count, values);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sums[i] += values[i];
    }
    StoreValues<false>(partials + block * columns + column, 0, count, sums);
  }
}

__global__ void __launch_bounds__(kThreads)
    AddPartialsKernel(std::int64_t blocks, std::int64_t columns, const float* partials, float* sums) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= columns) return;
  float sum = sums[column];
  for (std::int64_t block = 0; block < blocks; ++block) sum += partials[block * columns + column];
  sums[column] = sum;
}

__global__ void __launch_bounds__(kThreads)
    AddPixelsKernel(std::int64_t rows, std::int64_t columns, std::int64_t channels, const float* from, float* y,
                    std::int64_t y_row, std::int64_t y_column) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows * columns * channels) return;
  const std::int64_t pixel = at / channels;
  y[pixel / columns * y_row + pixel % columns * y_column + at % channels] += from[at];
}

constexpr int kTile = 32, kTileRows = kThreads / kTile;

// A tile goes through shared memory, so that both arrays are read and written along their rows; one column more than
// the tile has keeps the threads of a warp in different banks.
__global__ void __launch_bounds__(kThreads)
    AddTransposedKernel(std::int64_t rows, std::int64_t columns, const float* from, float* to, std::int64_t ld_to) {
  __shared__ float tile[kTile][kTile + 1];
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  for (std::int64_t first_row = blockIdx.y * std::int64_t{kTile}; first_row < rows;
       first_row += gridDim.y * std::int64_t{kTile}) {
    for (int i = y; i < kTile; i += kTileRows) {
      const std::int64_t row = first_row + i, column = first_column + x;
      if (row < rows && column < columns) tile[i][x] = from[row * columns + column];
    }
    __syncthreads();
    for (int i = y; i < kTile; i += kTileRows) {
      const std::int64_t row = first_row + x, column = first_column + i;
      if (row < rows && column < columns) to[column * ld_to + row] += tile[x][i];
    }
    __syncthreads();
  }
}

}  // namespace

void RoundRows(std::int64_t rows, std::int64_t columns, const float* from, std::int64_t ld_from, Bfloat16* to) {
  if (ld_from == columns) {  // one long row
    columns *= rows;
    rows = columns == 0 ? 0 : 1;
  }
  const bool wide = CanBeWide(columns, from, to) && (rows == 1 || ld_from % kVector == 0);
  Launch(wide ? RoundRowsKernel<true> : RoundRowsKernel<false>, RowGrid(columns, rows), kThreads, 0, rows, columns,
         from, ld_from, to);
}

void AddColumnSums(std::int64_t rows, std::int64_t columns, ConstActivations x, std::int64_t ldx, float* sums) {
  const std::int64_t blocks = (rows + kSumRows - 1) / kSumRows;
  float* partials = Scratch<float>(static_cast<std::size_t>(blocks * columns));
  const bool wide = CanBeWide(columns, x.data) && ldx % kVector == 0;
  WithElements(x.type, wide, [&]<typename T, bool kWide>() {
    Launch(PartialSumsKernel<T, kWide>, RowGrid(columns, blocks), kThreads, 0, rows, columns, x.As<T>(), ldx, partials);
  });
  Launch(AddPartialsKernel, BlocksFor(columns, kThreads), kThreads, 0, blocks, columns, partials, sums);
}

void AddPixels(std::int64_t rows, std::int64_t columns, std::int64_t channels, const float* from, float* y,
               std::int64_t y_row, std::int64_t y_column) {
  Launch(AddPixelsKernel, BlocksFor(rows * columns * channels, kThreads), kThreads, 0, rows, columns, channels, from, y,
         y_row, y_column);
}

void AddTransposed(std::int64_t rows, std::int64_t columns, const float* from, float* to, std::int64_t ld_to) {
  const dim3 grid(BlocksFor(columns, kTile),
                  static_cast<unsigned>(std::min<std::int64_t>((rows + kTile - 1) / kTile, kMostGridRows)));
  Launch(AddTransposedKernel, grid, kThreads, 0, rows, columns, from, to, ld_to);
}

}  // namespace spotlight::cuda
