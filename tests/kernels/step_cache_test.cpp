#include "kernels/step_cache.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

TEST(RowChanges, MatchesDoubleAndARowDoesNotFeelTheOthers) {
  const std::int64_t rows = 13;
  for (const std::int64_t width : {1, 3, 17, 24, 100, 3072}) {
    const Floats x = Normals(1, rows * width), last = Normals(2, rows * width);
    Floats sums(2 * rows, 9.0f), alone(2);
    RowChanges(rows, width, x.data(), last.data(), sums.data());
    Doubles expected(sums.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(width);
      expected[2 * row] += std::fabs(static_cast<double>(x[i]) - last[i]);
      expected[2 * row + 1] += std::fabs(static_cast<double>(last[i]));
    }
    ExpectClose(sums, expected, 1e-6);
    for (const std::int64_t row : {1, 7, 12}) {
      RowChanges(1, width, x.data() + row * width, last.data() + row * width, alone.data());
      EXPECT_EQ(alone, Slice(sums, 2 * row, 2)) << "row " << row << " of width " << width;
    }
  }
}

TEST(Subtract, LeavesTheDifference) {
  for (const std::int64_t size : {1, 3, 8195}) {
    const Floats x = Normals(1, size), y = Normals(2, size);
    Floats difference(x.size()), expected;
    Subtract(size, x.data(), y.data(), difference.data());
    for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(x[i] - y[i]);
    EXPECT_EQ(difference, expected);
  }
}

class MergeRowsOf : public testing::TestWithParam<std::vector<std::int64_t>> {};

TEST_P(MergeRowsOf, TakesWhatWasComputedAndAddsTheResidualElsewhere) {
  const std::vector<std::int64_t>& place = GetParam();
  const auto rows = static_cast<std::int64_t>(place.size());
  for (const std::int64_t width : {1, 3, 17, 24, 100, 3072}) {
    const Floats before = Normals(1, rows * width), computed = Normals(2, rows * width);
    const Floats residual = Normals(3, rows * width);
    Floats expected_residual = residual, expected;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) / width, column = static_cast<std::int64_t>(i) % width;
      const std::int64_t from = place[static_cast<std::size_t>(row)];
      if (from < 0) {
        expected.push_back(before[i] + residual[i]);
      } else {
        expected.push_back(computed[static_cast<std::size_t>(from * width + column)]);
        expected_residual[i] = expected.back() - before[i];
      }
    }
    Floats kept = residual, after(before.size(), 9.0f), in_place = before;
    MergeRows(rows, width, place.data(), before.data(), computed.data(), kept.data(), after.data());
    EXPECT_EQ(after, expected);
    EXPECT_EQ(kept, expected_residual);
    kept = residual;
    MergeRows(rows, width, place.data(), in_place.data(), computed.data(), kept.data(), in_place.data());
    EXPECT_EQ(in_place, expected);
    EXPECT_EQ(kept, expected_residual);
  }
}

// Every second row apart: more runs than one launch of a GPU takes.
std::vector<std::int64_t> EverySecond(std::int64_t rows) {
  std::vector<std::int64_t> place;
  for (std::int64_t row = 0; row < rows; ++row) place.push_back(row % 2 == 0 ? row / 2 : -1);
  return place;
}

INSTANTIATE_TEST_SUITE_P(Places, MergeRowsOf,
                         testing::Values(std::vector<std::int64_t>{-1, -1, -1}, std::vector<std::int64_t>{0, 1, 2, 3},
                                         std::vector<std::int64_t>{-1, -1, 0, 1, 2, -1, 3},
                                         std::vector<std::int64_t>{4, 0, 1, -1, -1, 2, 3}, EverySecond(300)));

}  // namespace
}  // namespace spotlight
