// Products against double, and the promises of kernels/linear.hpp: bits depend neither on the number of rows in a call
// nor on the number of threads, nor those of a slice on the others. They hold for the library and processor at hand
// only if this test passes.
#include "kernels/linear.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/operations.hpp"

namespace spotlight {
namespace {

std::vector<float> Normal(std::uint64_t key, std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(key, 0, values);
  return values;
}

struct Case {
  std::int64_t m, n, k;
};
// The tiny and the real model's widths, and sizes that no vector divides.
const Case kCases[] = {{70, 96, 96}, {70, 288, 96},  {40, 96, 384},  {40, 16, 96},   {70, 160, 640},
                       {23, 96, 16}, {19, 7, 33},    {130, 33, 50},  {17, 1, 5},     {50, 5, 1},
                       {1, 1, 1},    {80, 40, 3072}, {300, 24, 100}, {21, 33, 1500}, {1, 7, 300}};

double Op(bool transpose, const std::vector<float>& x, std::int64_t ld, std::int64_t row, std::int64_t column) {
  return x[static_cast<std::size_t>(transpose ? column * ld + row : row * ld + column)];
}

TEST(Gemm, AgreesWithDoubleForEveryTransposition) {
  for (const Case& size : kCases) {
    for (int flags = 0; flags < 8; ++flags) {
      GemmShape shape{.transpose_a = (flags & 1) != 0, .transpose_b = (flags & 2) != 0};
      shape.m = size.m, shape.n = size.n, shape.k = size.k;
      shape.accumulate = (flags & 4) != 0;
      shape.lda = (shape.transpose_a ? size.m : size.k) + 3;  // wider than the matrix
      shape.ldb = (shape.transpose_b ? size.k : size.n) + 1;
      shape.ldc = size.n + 2;
      const auto a = Normal(1, shape.lda * (shape.transpose_a ? size.k : size.m));
      const auto b = Normal(2, shape.ldb * (shape.transpose_b ? size.n : size.k));
      const auto before = Normal(3, shape.ldc * size.m);
      auto c = before;
      Gemm(shape, a.data(), b.data(), c.data());
      for (std::int64_t i = 0; i < size.m; ++i) {
        for (std::int64_t j = 0; j < shape.ldc; ++j) {
          const auto at = static_cast<std::size_t>(i * shape.ldc + j);
          if (j >= size.n) {
            ASSERT_EQ(c[at], before[at]) << "wrote beside the matrix";
            continue;
          }
          double expected = shape.accumulate ? before[at] : 0.0;
          double magnitude = std::abs(expected);
          for (std::int64_t p = 0; p < size.k; ++p) {
            const double term = Op(shape.transpose_a, a, shape.lda, i, p) * Op(shape.transpose_b, b, shape.ldb, p, j);
            expected += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(c[at], expected, 1e-6 * magnitude)
              << size.m << "x" << size.n << "x" << size.k << " flags " << flags << " at " << i << "," << j;
        }
      }
    }
  }
}

TEST(Gemm, RowsDoNotDependOnTheirNumber) {
  for (const Case& size : kCases) {
    for (int flags = 0; flags < 8; ++flags) {
      const bool transpose_b = (flags & 1) != 0;
      const bool accumulate = (flags & 2) != 0;
      const std::int64_t gap = (flags & 4) != 0 ? 2 * size.k : 0;  // as in a slice of a wider row
      GemmShape shape{.transpose_b = transpose_b, .m = size.m, .n = size.n, .k = size.k};
      shape.lda = size.k + gap, shape.ldb = transpose_b ? size.k : size.n, shape.ldc = size.n + gap;
      shape.accumulate = accumulate;
      const auto a = Normal(1, size.m * shape.lda);
      const auto b = Normal(2, size.n * size.k);
      const auto before = Normal(3, size.m * shape.ldc);
      auto all = before;
      Gemm(shape, a.data(), b.data(), all.data());
      for (const std::int64_t rows : {1, 2, 3, 7, 8, 16, 17, 31, 48, 65, 129, 257}) {
        for (const std::int64_t first : {0, 5}) {
          if (first + rows > size.m) continue;
          auto some = before;
          shape.m = rows;
          Gemm(shape, a.data() + first * shape.lda, b.data(), some.data() + first * shape.ldc);
          for (std::int64_t i = first * shape.ldc; i < (first + rows) * shape.ldc; ++i) {
            const auto at = static_cast<std::size_t>(i);
            ASSERT_EQ(some[at], all[at]) << rows << " of " << size.m << " rows, n " << size.n << " k " << size.k
                                         << " flags " << flags;
          }
        }
      }
    }
  }
}

TEST(Gemm, RefusesAnEmptySum) {
  const float one = 1.0f;
  float c = 0.0f;
  try {
    Gemm({.m = 1, .n = 1, .k = 0, .lda = 1, .ldb = 1, .ldc = 1}, &one, &one, &c);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("positive sizes"), std::string::npos) << error.what();
  }
}

TEST(Linear, ForwardAddsTheBiasAndKeepsRows) {
  const std::int64_t rows = 90, in = 96, out = 37, ldx = 100, ldy = 40;
  const auto x = Normal(1, rows * ldx);
  const auto weight = Normal(2, out * in);
  const auto bias = Normal(3, out);
  std::vector<float> y(rows * ldy), plain(rows * ldy);
  LinearForward(rows, in, out, x.data(), ldx, {.fp32 = weight.data()}, bias.data(), y.data(), ldy);
  LinearForward(rows, in, out, x.data(), ldx, {.fp32 = weight.data()}, nullptr, plain.data(), ldy);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::vector<float> row(out);
    LinearForward(1, in, out, x.data() + i * ldx, ldx, {.fp32 = weight.data()}, bias.data(), row.data(), out);
    for (std::int64_t j = 0; j < out; ++j) {
      double expected = 0;
      for (std::int64_t p = 0; p < in; ++p) {
        expected += static_cast<double>(x[i * ldx + p]) * weight[j * in + p];
      }
      ASSERT_NEAR(plain[i * ldy + j], expected, 5e-5);
      ASSERT_NEAR(y[i * ldy + j], expected + bias[j], 5e-5);
      ASSERT_EQ(row[j], y[i * ldy + j]) << "row " << i << " alone";
    }
  }
}

// Shapes with many, two and one call to oneDNN; more shares than calls.
// On a device 2^17 rows are a product; a batch of 65 images of 512 px with guidance has more.
TEST(Linear, TakesMoreRowsThanOneProduct) {
  const std::int64_t product = 1 << 17, rows = product + 70, in = 8, out = 12;
  const auto x = Normal(1, rows * in), weight = Normal(2, out * in), bias = Normal(3, out), dy = Normal(4, rows * out);
  const auto some = [&](std::int64_t first, std::int64_t count) {
    std::vector<float> y(count * out), c(count * in, 0.5f), dx(count * in, 0.5f);
    LinearForward(count, in, out, x.data() + first * in, in, {.fp32 = weight.data()}, bias.data(), y.data(), out);
    LinearBackwardInput(count, in, out, dy.data() + first * out, out, {.fp32 = weight.data()}, dx.data(), in, true);
    Gemm({.m = count, .n = in, .k = out, .lda = out, .ldb = in, .ldc = in, .accumulate = true}, dy.data() + first * out,
         weight.data(), c.data());
    y.insert(y.end(), dx.begin(), dx.end());
    y.insert(y.end(), c.begin(), c.end());
    return y;
  };
  const auto all = some(0, rows);
  for (const std::int64_t first : {std::int64_t{0}, product - 40, product - 1, rows - 20}) {
    const auto part = some(first, 20);
    for (std::int64_t i = 0; i < 20 * out; ++i) ASSERT_EQ(part[i], all[first * out + i]) << first << " forward";
    for (std::int64_t i = 0; i < 2 * 20 * in; ++i) {
      const std::int64_t at = i < 20 * in ? i : i - 20 * in + rows * in;
      ASSERT_EQ(part[20 * out + i], all[rows * out + first * in + at]) << first << " backward, product";
    }
  }
}

TEST(Linear, SharesOfTheWeightGradientHaveTheBitsOfTheWhole) {
  for (const auto& [rows, in, out] : {std::array{300, 40, 1000}, {257, 33, 150}, {40, 24, 100}, {1, 8, 3}}) {
    const auto x = Normal(1, rows * in), dy = Normal(2, rows * out);
    const auto start = Normal(3, out * in), start_bias = Normal(4, out);
    auto whole = start, whole_bias = start_bias;
    LinearBackwardWeight(rows, in, out, x.data(), in, dy.data(), out, whole.data(), whole_bias.data());
    for (const int count : {2, 3, 7}) {
      auto parts = start, parts_bias = start_bias;
      for (int index = 0; index < count; ++index) {
        LinearBackwardWeight(rows, in, out, x.data(), in, dy.data(), out, parts.data(), parts_bias.data(),
                             {index, count});
        EXPECT_EQ(parts == whole, index + 1 == count) << index << " of " << count;
      }
      EXPECT_EQ(parts, whole) << out << " outputs, " << count << " shares";
      EXPECT_EQ(parts_bias, whole_bias) << out << " outputs, " << count << " shares";
    }
  }
}

// <dy, x W^T + b> is linear in each of x, W and b; its gradients are checked against sums in double.
TEST(Linear, BackwardAgreesWithDouble) {
  const std::int64_t rows = 150, in = 33, out = 70, ldx = 35, ldy = 72;
  const auto x = Normal(1, rows * ldx);
  const auto weight = Normal(2, out * in);
  const auto dy = Normal(3, rows * ldy);
  std::vector<float> dx(rows * ldx, 1.0f), dweight(out * in, 2.0f), dbias(out, 3.0f);
  LinearBackwardInput(rows, in, out, dy.data(), ldy, {.fp32 = weight.data()}, dx.data(), ldx, true);
  LinearBackwardWeight(rows, in, out, x.data(), ldx, dy.data(), ldy, dweight.data(), dbias.data());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t p = 0; p < in; ++p) {
      double expected = 1.0;
      for (std::int64_t j = 0; j < out; ++j) {
        expected += static_cast<double>(dy[i * ldy + j]) * weight[j * in + p];
      }
      ASSERT_NEAR(dx[i * ldx + p], expected, 5e-5);
    }
    ASSERT_EQ(dx[i * ldx + in], 1.0f) << "wrote beside the matrix";
  }
  for (std::int64_t j = 0; j < out; ++j) {
    double bias = 3.0;
    for (std::int64_t i = 0; i < rows; ++i) bias += dy[i * ldy + j];
    ASSERT_NEAR(dbias[j], bias, 5e-5);
    for (std::int64_t p = 0; p < in; ++p) {
      double expected = 2.0;
      for (std::int64_t i = 0; i < rows; ++i) {
        expected += static_cast<double>(dy[i * ldy + j]) * x[i * ldx + p];
      }
      ASSERT_NEAR(dweight[j * in + p], expected, 1e-4);
    }
  }
}

TEST(Linear, BackwardInputOverwritesUnlessToldToAdd) {
  const std::vector<float> dy{2.0f}, weight{3.0f};
  std::vector<float> dx{5.0f};
  LinearBackwardInput(1, 1, 1, dy.data(), 1, {.fp32 = weight.data()}, dx.data(), 1, true);
  EXPECT_EQ(dx[0], 11.0f);
  LinearBackwardInput(1, 1, 1, dy.data(), 1, {.fp32 = weight.data()}, dx.data(), 1, false);
  EXPECT_EQ(dx[0], 6.0f);
}

TEST(Linear, WeightGradientTakesNoBiasAndNoRows) {
  std::vector<float> dweight{1.0f};
  LinearBackwardWeight(0, 1, 1, nullptr, 1, nullptr, 1, dweight.data(), nullptr);
  EXPECT_EQ(dweight[0], 1.0f);
  const std::vector<float> two{2.0f};
  LinearBackwardWeight(1, 1, 1, two.data(), 1, two.data(), 1, dweight.data(), nullptr);
  EXPECT_EQ(dweight[0], 5.0f);
}

// A bfloat16 weight, and the same numbers in fp32.
struct StoredWeight {
  std::vector<Bfloat16> bf16;
  std::vector<float> fp32;
};

StoredWeight MakeStoredWeight(std::int64_t size) {
  StoredWeight weight;
  for (const float value : Normal(2, size)) {
    weight.bf16.push_back(ToBfloat16(value));
    weight.fp32.push_back(ToFloat(weight.bf16.back()));
  }
  return weight;
}

// Beside a bfloat16 weight CUDA's products round the other operand to bfloat16, too: numbers that need no rounding.
std::vector<float> Operand(std::vector<float> values) {
  if (std::string_view(ActiveOperations().name) != "cuda") return values;
  for (float& value : values) value = ToFloat(ToBfloat16(value));
  return values;
}

// Every number is a sum of `terms` products of normal numbers; the two orders of its terms (up to 40000 of them) differ
// by millionths of its size or of the typical one.
void ExpectSameSums(const std::vector<float>& got, const std::vector<float>& expected, std::int64_t terms) {
  const double typical = std::sqrt(static_cast<double>(terms));
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], expected[i], 4e-6 * (typical + std::abs(expected[i]))) << i;
  }
}

// in, out: sizes of the models, odd ones, and, the last three, several panels of the wide side.
const std::int64_t kStored[][2] = {{96, 288}, {33, 70}, {3072, 64}, {16, 96}, {3072, 1500}, {8192, 300}, {64, 40000}};

TEST(Linear, OfABfloat16WeightEqualsThatOfTheWidenedOne) {
  for (const auto& [in, out] : kStored) {
    const StoredWeight weight = MakeStoredWeight(out * in);
    const auto bias = Normal(3, out);
    const std::int64_t rows = 37, ldx = in + 5, ldy = out + 3;
    const auto x = Operand(Normal(1, rows * ldx));
    auto stored = Normal(4, rows * ldy), widened = stored;  // what lies beside the matrix stays
    for (const float* its_bias : {bias.data(), static_cast<const float*>(nullptr)}) {
      LinearForward(rows, in, out, x.data(), ldx, {.bf16 = weight.bf16.data()}, its_bias, stored.data(), ldy);
      LinearForward(rows, in, out, x.data(), ldx, {.fp32 = weight.fp32.data()}, its_bias, widened.data(), ldy);
      ExpectSameSums(stored, widened, in);
    }
    stored = Operand(stored);
    for (const bool accumulate : {false, true}) {
      auto dx = x, expected = x;
      LinearBackwardInput(rows, in, out, stored.data(), ldy, {.bf16 = weight.bf16.data()}, dx.data(), ldx, accumulate);
      LinearBackwardInput(rows, in, out, stored.data(), ldy, {.fp32 = weight.fp32.data()}, expected.data(), ldx,
                          accumulate);
      ExpectSameSums(dx, expected, out * in);  // dy has the size of a sum over `in`
    }
  }
}

TEST(Linear, RowsOfABfloat16WeightDoNotDependOnTheirNumber) {
  for (const auto& [in, out] : kStored) {
    const StoredWeight weight = MakeStoredWeight(out * in);
    const WeightMatrix stored{.bf16 = weight.bf16.data()};
    const std::int64_t rows = 70;
    const auto x = Normal(1, rows * in), dy = Normal(4, rows * out), bias = Normal(3, out);
    std::vector<float> y(rows * out), dx(rows * in, 1.0f);
    LinearForward(rows, in, out, x.data(), in, stored, bias.data(), y.data(), out);
    LinearBackwardInput(rows, in, out, dy.data(), out, stored, dx.data(), in, true);
    for (const std::int64_t count : {1, 7, 16, 33}) {
      const std::int64_t first = 37 % (rows - count);
      std::vector<float> some_y(count * out), some_dx(count * in, 1.0f);
      LinearForward(count, in, out, x.data() + first * in, in, stored, bias.data(), some_y.data(), out);
      LinearBackwardInput(count, in, out, dy.data() + first * out, out, stored, some_dx.data(), in, true);
      ASSERT_TRUE(std::equal(some_y.begin(), some_y.end(), y.begin() + first * out)) << in << " " << out;
      ASSERT_TRUE(std::equal(some_dx.begin(), some_dx.end(), dx.begin() + first * in)) << in << " " << out;
    }
  }
}

TEST(Linear, OfABfloat16WeightTakesNoRowsAndOffsets) {
  const std::vector<Bfloat16> weight{ToBfloat16(7.0f), ToBfloat16(3.0f)};
  const std::vector<float> two{2.0f};
  std::vector<float> y{5.0f};
  const WeightMatrix second = WeightMatrix{.bf16 = weight.data()} + 1;
  LinearForward(0, 1, 1, nullptr, 1, second, nullptr, y.data(), 1);
  LinearBackwardInput(0, 1, 1, nullptr, 1, second, y.data(), 1, false);
  EXPECT_EQ(y[0], 5.0f);
  LinearForward(1, 1, 1, two.data(), 1, second, nullptr, y.data(), 1);
  EXPECT_EQ(y[0], 6.0f);
  EXPECT_EQ((WeightMatrix{.bf16 = weight.data()} + 1).fp32, nullptr);
  EXPECT_EQ(*(WeightMatrix{.fp32 = two.data()} + 0).fp32, 2.0f);
}

// Columns [first, first + count) of x [rows, ld], with `gap` numbers between its rows.
std::vector<float> Columns(const std::vector<float>& x, std::int64_t rows, std::int64_t ld, std::int64_t first,
                           std::int64_t count, std::int64_t gap) {
  std::vector<float> columns(rows * (count + gap), 7.0f);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < count; ++j) columns[i * (count + gap) + j] = x[i * ld + first + j];
  }
  return columns;
}

// Rank p of a group of P holds out / P columns of dy: its part of dW has the bits of the whole.
void ExpectSlicesOfGroups(std::int64_t rows, std::int64_t in, std::int64_t heads, std::int64_t slice) {
  const std::int64_t out = heads * slice;
  const auto x = Normal(1, rows * in), dy = Normal(2, rows * out), before = Normal(3, out * in);
  auto whole = before;
  LinearBackwardWeightInSlices(rows, in, out, slice, x.data(), in, dy.data(), out, whole.data());
  for (const std::int64_t ranks : {2, 3, 4, 8, 24}) {
    if (heads % ranks != 0) continue;
    const std::int64_t own = out / ranks;
    for (const std::int64_t rank : {std::int64_t{0}, ranks / 2, ranks - 1}) {
      const std::int64_t gap = rank % 2;  // and once from rows with gaps
      const auto own_dy = Columns(dy, rows, out, rank * own, own, gap), own_x = Columns(x, rows, in, 0, in, 3 * gap);
      std::vector<float> part(before.begin() + rank * own * in, before.begin() + (rank + 1) * own * in);
      LinearBackwardWeightInSlices(rows, in, own, slice, own_x.data(), in + 3 * gap, own_dy.data(), own + gap,
                                   part.data());
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + rank * own * in))
          << "rows " << rows << " in " << in << " slice " << slice << " rank " << rank << " of " << ranks;
    }
  }
}

TEST(WeightGradientInSlices, ARankOfAGroupGetsTheBitsOfTheWhole) {
  for (const std::int64_t rank : {4, 16, 64}) {
    for (const std::int64_t rows : {1, 37, 257, 300}) {
      ExpectSlicesOfGroups(rows, rank, 4, 24);   // the tiny model
      ExpectSlicesOfGroups(rows, rank, 24, 24);  // every size of group
    }
    ExpectSlicesOfGroups(300, rank, 24, 128);  // Qwen-Image, 3072 features; 12288 are below
  }
  ExpectSlicesOfGroups(70, 16, 24, 512);
  ExpectSlicesOfGroups(1088, 16, 24, 32);  // so many rows that oneDNN's own order depends on row strides
  ExpectSlicesOfGroups(70, 128, 8, 8);
  ExpectSlicesOfGroups(40, 3072, 4, 16);
}

TEST(WeightGradientInSlices, AgreesWithDouble) {
  const std::int64_t rows = 300, in = 20, out = 30, ldx = 23, ldy = 33;
  const auto x = Normal(1, rows * ldx), dy = Normal(2, rows * ldy);
  std::vector<float> dweight(out * in, 2.0f);
  LinearBackwardWeightInSlices(rows, in, out, 6, x.data(), ldx, dy.data(), ldy, dweight.data());
  LinearBackwardWeightInSlices(0, in, out, 6, nullptr, ldx, nullptr, ldy, dweight.data());
  for (std::int64_t j = 0; j < out; ++j) {
    for (std::int64_t p = 0; p < in; ++p) {
      double expected = 2.0;
      for (std::int64_t i = 0; i < rows; ++i) expected += static_cast<double>(dy[i * ldy + j]) * x[i * ldx + p];
      ASSERT_NEAR(dweight[j * in + p], expected, 1e-4);
    }
  }
}

TEST(WeightGradientInSlices, NeedsSlicesOfEqualSize) {
  float dweight[5] = {};
  try {
    LinearBackwardWeightInSlices(1, 1, 5, 2, dweight, 1, dweight, 5, dweight);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("slices of equal size"), std::string::npos) << error.what();
  }
}

TEST(AddTransposed, AddsTheTranspose) {
  const std::int64_t rows = 19, columns = 70, ld_to = 22;
  const auto from = Normal(1, rows * columns), before = Normal(2, columns * ld_to);
  auto to = before;
  AddTransposed(rows, columns, from.data(), to.data(), ld_to);
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = 0; i < ld_to; ++i) {
      const float expected = before[j * ld_to + i] + (i < rows ? from[i * columns + j] : 0.0f);
      ASSERT_EQ(to[j * ld_to + i], expected) << j << " " << i;
    }
  }
}

}  // namespace
}  // namespace spotlight
