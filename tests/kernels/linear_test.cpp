// Products against double, and the two promises of kernels/linear.hpp: bits depend neither on the number of rows in a
// call nor on the number of threads. Both hold for the library and processor at hand only if this test passes.
#include "kernels/linear.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

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
const Case kCases[] = {{70, 96, 96}, {70, 288, 96},  {40, 96, 384},  {40, 16, 96},  {70, 160, 640},
                       {23, 96, 16}, {19, 7, 33},    {130, 33, 50},  {17, 1, 5},    {50, 5, 1},
                       {1, 1, 1},    {80, 40, 3072}, {300, 24, 100}, {21, 33, 1500}};

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
  LinearForward(rows, in, out, x.data(), ldx, weight.data(), bias.data(), y.data(), ldy);
  LinearForward(rows, in, out, x.data(), ldx, weight.data(), nullptr, plain.data(), ldy);
  for (std::int64_t i = 0; i < rows; ++i) {
    std::vector<float> row(out);
    LinearForward(1, in, out, x.data() + i * ldx, ldx, weight.data(), bias.data(), row.data(), out);
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

// <dy, x W^T + b> is linear in each of x, W and b; its gradients are checked against sums in double.
TEST(Linear, BackwardAgreesWithDouble) {
  const std::int64_t rows = 150, in = 33, out = 70, ldx = 35, ldy = 72;
  const auto x = Normal(1, rows * ldx);
  const auto weight = Normal(2, out * in);
  const auto dy = Normal(3, rows * ldy);
  std::vector<float> dx(rows * ldx, 1.0f), dweight(out * in, 2.0f), dbias(out, 3.0f);
  LinearBackwardInput(rows, in, out, dy.data(), ldy, weight.data(), dx.data(), ldx, true);
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
  LinearBackwardInput(1, 1, 1, dy.data(), 1, weight.data(), dx.data(), 1, true);
  EXPECT_EQ(dx[0], 11.0f);
  LinearBackwardInput(1, 1, 1, dy.data(), 1, weight.data(), dx.data(), 1, false);
  EXPECT_EQ(dx[0], 6.0f);
}

TEST(Linear, WeightGradientTakesNoBiasAndNoRows) {
  std::vector<float> dweight{1.0f};
  LinearBackwardWeight(0, 1, 1, nullptr, 1, nullptr, 1, dweight.data(), nullptr);
  EXPECT_EQ(dweight[0], 1.0f);
  const float two = 2.0f;
  LinearBackwardWeight(1, 1, 1, &two, 1, &two, 1, dweight.data(), nullptr);
  EXPECT_EQ(dweight[0], 5.0f);
}

}  // namespace
}  // namespace spotlight
