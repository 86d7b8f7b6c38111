// What surrounds the CUDA back end's library calls (kernels/cuda/matrix_rows.hpp) and AddTransposed, in the emulation:
// widths that no vector divides, rows with gaps, nothing written beside the result.
#include <gtest/gtest.h>

#include "kernels/cuda/matrix_rows.hpp"
#include "kernels/operations_cuda.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

struct Size {
  std::int64_t rows, columns, gap;
};

std::vector<Size> Sizes() {
  std::vector<Size> sizes;
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                      {3, 17},
                                      {70, 24},
                                      {200, 100},
                                      {65, 33},
                                      {130, 1028},
                                      {64, 64},
                                      {1, 3000}}) {
    for (const std::int64_t gap : {0, 4, 3}) sizes.push_back({rows, columns, gap});
  }
  return sizes;
}

std::vector<Bfloat16> Round(const Floats& values) {
  std::vector<Bfloat16> rounded;
  for (const float value : values) rounded.push_back(ToBfloat16(value));
  return rounded;
}

TEST(CudaMatrixRows, RoundsRowsWithGaps) {
  for (const auto& [rows, columns, gap] : Sizes()) {
    const std::int64_t ld = columns + gap;
    const Floats from = Normals(1, rows * ld);
    std::vector<Bfloat16> to(static_cast<std::size_t>(rows * columns + 1), Bfloat16{7}), expected = to;
    cuda::RoundRows(rows, columns, from.data(), ld, to.data());
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      expected[static_cast<std::size_t>(i)] =
          ToBfloat16(from[static_cast<std::size_t>(i / columns * ld + i % columns)]);
    }
    EXPECT_TRUE(to == expected) << rows << " x " << columns << ", gap " << gap;
  }
}

TEST(CudaMatrixRows, AddsColumnSumsOfBothTypes) {
  for (const auto& [rows, columns, gap] : Sizes()) {
    SCOPED_TRACE(testing::Message() << rows << " x " << columns << ", gap " << gap);
    const std::int64_t ld = columns + gap;
    const Floats x = Normals(1, rows * ld), before = Normals(2, columns + 1);
    const std::vector<Bfloat16> rounded = Round(x);
    for (const bool narrow : {false, true}) {
      Floats sums = before;
      cuda::AddColumnSums(rows, columns, narrow ? ConstActivations(rounded.data()) : ConstActivations(x.data()), ld,
                          sums.data());
      Doubles expected = Widen(before);
      for (std::int64_t i = 0; i < rows * columns; ++i) {
        const auto at = static_cast<std::size_t>(i / columns * ld + i % columns);
        expected[static_cast<std::size_t>(i % columns)] += narrow ? ToFloat(rounded[at]) : x[at];
      }
      ExpectClose(sums, expected, 1e-5);
    }
  }
}

TEST(CudaMatrixRows, AColumnSumDoesNotDependOnOtherColumns) {
  const std::int64_t rows = 300, columns = 40;
  const Floats x = Normals(1, rows * columns);
  Floats whole(static_cast<std::size_t>(columns)), part(7);
  cuda::AddColumnSums(rows, columns, x.data(), columns, whole.data());
  cuda::AddColumnSums(rows, 7, x.data() + 5, columns, part.data());
  EXPECT_EQ(part, Slice(whole, 5, 7));
}

TEST(CudaMatrixRows, AddsTransposed) {
  for (const auto& [rows, columns, gap] : Sizes()) {
    const std::int64_t ld = rows + gap;
    const Floats from = Normals(1, rows * columns), before = Normals(2, columns * ld);
    Floats to = before, expected = before;
    cuda::AddTransposed(rows, columns, from.data(), to.data(), ld);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      expected[static_cast<std::size_t>(i % columns * ld + i / columns)] += from[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(to, expected) << rows << " x " << columns << ", gap " << gap;
  }
}

TEST(CudaMatrixRows, AddsPixelsWithGaps) {
  const std::int64_t rows = 5, columns = 7, channels = 6, y_row = 100, y_column = 9;
  const Floats from = Normals(1, rows * columns * channels), before = Normals(2, rows * y_row);
  Floats y = before, expected = before;
  cuda::AddPixels(rows, columns, channels, from.data(), y.data(), y_row, y_column);
  for (std::int64_t i = 0; i < rows * columns * channels; ++i) {
    const std::int64_t pixel = i / channels;
    const std::int64_t at = pixel / columns * y_row + pixel % columns * y_column + i % channels;
    expected[static_cast<std::size_t>(at)] += from[static_cast<std::size_t>(i)];
  }
  EXPECT_EQ(y, expected);
}

}  // namespace
}  // namespace spotlight
