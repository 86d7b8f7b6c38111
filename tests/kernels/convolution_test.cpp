// Convolution against plain loops in double, in bands, added and magnified, and the normalisation of pixels.
#include "kernels/convolution.hpp"

#include <gtest/gtest.h>

#include <string_view>

#include "base/error.hpp"
#include "kernels/operations.hpp"
#include "kernels/pixel_norm.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

// Of a size that makes results of about 1.
Floats Weights(const ConvolutionShape& shape) {
  const std::int64_t terms = shape.in * shape.taps * shape.taps;
  Floats weight = Normals(2, shape.out * terms);
  for (float& value : weight) value /= std::sqrt(static_cast<float>(terms));
  return weight;
}

struct Problem {
  ConvolutionShape shape;
  std::int64_t rows, columns;
  Floats x = Normals(1, rows* columns* shape.in);
  Floats weight = Weights(shape);
  Floats bias = Normals(3, shape.out);
  Convolution convolution{shape, weight, bias};

  ConvolutionBand Band(std::int64_t first, std::int64_t count) const {
    return {.rows = rows,
            .columns = columns,
            .first = first,
            .count = count,
            .y_row = columns * shape.out,
            .y_column = shape.out};
  }
  Floats Whole() const {
    Floats y(static_cast<std::size_t>(rows * columns * shape.out));
    convolution.Apply(Band(0, rows), x.data(), y.data());
    return y;
  }
  // By the definition, one term after the other.
  Doubles Reference() const {
    Doubles y;
    for (std::int64_t at = 0; at < rows * columns; ++at) {
      for (std::int64_t o = 0; o < shape.out; ++o) y.push_back(Result(at / columns, at % columns, o));
    }
    return y;
  }
  double Result(std::int64_t row, std::int64_t column, std::int64_t o) const {
    double sum = bias[static_cast<std::size_t>(o)];
    for (std::int64_t i = 0; i < shape.taps; ++i) {
      for (std::int64_t j = 0; j < shape.taps; ++j) {
        const std::int64_t r = row + i - shape.pad_row, c = column + j - shape.pad_column;
        if (r < 0 || r >= rows || c < 0 || c >= columns) continue;
        for (std::int64_t k = 0; k < shape.in; ++k) {
          sum += static_cast<double>(x[static_cast<std::size_t>((r * columns + c) * shape.in + k)]) *
                 weight[static_cast<std::size_t>(((o * shape.in + k) * shape.taps + i) * shape.taps + j)];
        }
      }
    }
    return sum;
  }
};

constexpr double kFp32Tolerance = 5e-6, kTf32Tolerance = 3e-3;  // of results of about 1

double ConvolutionTolerance() {
  return std::string_view(ActiveOperations().name) == "cuda" ? kTf32Tolerance : kFp32Tolerance;
}

TEST(Convolution, MatchesDouble) {
  // Channels beside and beyond the widths of vectors and panels, images smaller than the kernel, several runs of a row.
  for (const Problem& problem :
       {Problem{{16, 16, 1, 0, 0}, 3, 5}, Problem{{8, 3, 3, 1, 1}, 5, 7}, Problem{{3, 40, 3, 1, 1}, 1, 1},
        Problem{{96, 33, 3, 1, 1}, 2, 13}, Problem{{200, 96, 3, 1, 1}, 3, 100}, Problem{{24, 12, 2, 1, 0}, 4, 6},
        Problem{{24, 12, 2, 0, 1}, 4, 6}, Problem{{5, 9, 2, 0, 0}, 1, 97}}) {
    SCOPED_TRACE(testing::Message() << problem.shape.in << " -> " << problem.shape.out << ", " << problem.shape.taps
                                    << " taps, " << problem.rows << " x " << problem.columns);
    ExpectClose(problem.Whole(), problem.Reference(), ConvolutionTolerance());
  }
}

// cuDNN promises the same bits for the same band only.
TEST(Convolution, BandsGiveTheSameBits) {
  const Problem problem{{20, 48, 3, 1, 1}, 9, 130};
  const Floats whole = problem.Whole();
  Floats y(whole.size(), 9.0f);
  const std::int64_t x_row = problem.columns * problem.shape.in, y_row = problem.columns * problem.shape.out;
  for (std::int64_t first = 0; first < problem.rows; first += 2) {
    ConvolutionBand band = problem.Band(first, std::min<std::int64_t>(2, problem.rows - first));
    band.x_first = first - 1;  // only the rows that are needed lie in memory
    const std::int64_t begin = std::max<std::int64_t>(0, first - 1), end = std::min(problem.rows, first + 3);
    Floats rows(static_cast<std::size_t>(4 * x_row), NAN);
    std::copy(problem.x.begin() + begin * x_row, problem.x.begin() + end * x_row,
              rows.begin() + (begin - band.x_first) * x_row);
    problem.convolution.Apply(band, rows.data(), y.data() + first * y_row);
  }
  if (ConvolutionTolerance() > kFp32Tolerance) {
    ExpectClose(y, Widen(whole), ConvolutionTolerance());
  } else {
    EXPECT_EQ(y, whole);
  }
}

TEST(Convolution, AddsToStridedResults) {
  const Problem problem{{12, 6, 3, 1, 1}, 3, 4};
  const Floats whole = problem.Whole();
  Floats y(static_cast<std::size_t>(3 * 100), 0.5f);
  ConvolutionBand band = problem.Band(0, 3);
  band.y_row = 100, band.y_column = 20, band.add = true;
  problem.convolution.Apply(band, problem.x.data(), y.data());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t row = i / 100, column = i % 100 / 20, o = i % 20;
    const bool written = column < 4 && o < 6;
    ASSERT_EQ(y[i], written ? 0.5f + whole[(row * 4 + column) * 6 + o] : 0.5f) << i;
  }
}

TEST(Convolution, RefusesWhatDoesNotFit) {
  const Problem problem{{4, 4, 3, 1, 1}, 3, 3};
  EXPECT_THROW(Convolution({4, 4, 3, 1, 1}, std::span(problem.weight).first(9), problem.bias), InternalError);
  EXPECT_THROW(Convolution({4, 4, 3, 1, 1}, problem.weight, std::span(problem.bias).first(3)), InternalError);
  Floats y(200);
  EXPECT_THROW(problem.convolution.Apply(problem.Band(1, 3), problem.x.data(), y.data()), InternalError);
}

TEST(NormPixels, MatchesDouble) {
  const std::int64_t pixels = 67;
  for (const std::int64_t channels : {1, 8, 33, 96, 384}) {
    Floats x = Normals(1, pixels * channels);
    std::fill_n(x.begin(), channels, 0.0f);  // a pixel without a direction stays zero
    const Floats gamma = Normals(2, channels);
    for (const bool silu : {false, true}) {
      Doubles expected(x.size());
      for (std::int64_t p = 0; p < pixels; ++p) {
        double square = 0;
        for (std::int64_t k = 0; k < channels; ++k)
          square += std::pow(x[static_cast<std::size_t>(p * channels + k)], 2);
        for (std::int64_t k = 0; k < channels; ++k) {
          const auto at = static_cast<std::size_t>(p * channels + k);
          const double y = x[at] / std::max(std::sqrt(square), 1e-12) * std::sqrt(static_cast<double>(channels)) *
                           gamma[static_cast<std::size_t>(k)];
          expected[at] = silu ? y / (1 + std::exp(-y)) : y;
        }
      }
      Floats y(x.size());
      NormPixels(pixels, channels, x.data(), gamma.data(), silu, y.data());
      ExpectClose(y, expected, 2e-6);
      Floats in_place = x;
      NormPixels(pixels, channels, in_place.data(), gamma.data(), silu, in_place.data());
      EXPECT_EQ(in_place, y);
    }
  }
}

}  // namespace
}  // namespace spotlight
