// Muon's update goes against the gradient with nearly equal singular values, whatever those of the gradient, and
// follows its formula in double over two steps.
#include "train/muon.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.hpp"
#include "kernels/linear.hpp"

namespace spotlight {
namespace {

// Of one badly scaled column.
std::vector<float> Gradient(std::uint64_t stream, Index rows, Index columns) {
  std::vector<float> gradient(static_cast<std::size_t>(rows * columns));
  FillNormal(stream, 0, gradient);
  for (Index i = 0; i < rows; ++i) gradient[static_cast<std::size_t>(i * columns)] *= 5.0f;
  return gradient;
}

// A matrix in double, only as far as the reference needs it.
struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix Transposed() const {
    Matrix t{columns, rows, std::vector<double>(values.size())};
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; ++j) t.values[j * rows + i] = values[i * columns + j];
    }
    return t;
  }
  Matrix operator*(const Matrix& b) const {
    Matrix c{rows, b.columns, std::vector<double>(rows * b.columns)};
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t k = 0; k < columns; ++k) {
        for (std::size_t j = 0; j < b.columns; ++j) {
          c.values[i * b.columns + j] += values[i * columns + k] * b.values[k * b.columns + j];
        }
      }
    }
    return c;
  }
};

// Jordan et al.'s zeropower_via_newtonschulz5.
Matrix Orthogonalised(Matrix x) {
  const bool tall = x.rows > x.columns;
  if (tall) x = x.Transposed();
  const double norm = std::sqrt(std::inner_product(x.values.begin(), x.values.end(), x.values.begin(), 0.0));
  for (double& value : x.values) value /= norm + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const Matrix gram = x * x.Transposed();
    Matrix polynomial = gram * gram;
    for (std::size_t k = 0; k < gram.values.size(); ++k) {
      polynomial.values[k] = -4.7750 * gram.values[k] + 2.0315 * polynomial.values[k];
    }
    const Matrix product = polynomial * x;
    for (std::size_t k = 0; k < x.values.size(); ++k) x.values[k] = 3.4445 * x.values[k] + product.values[k];
  }
  return tall ? x.Transposed() : x;
}

class MuonUpdate : public testing::TestWithParam<std::pair<Index, Index>> {
 protected:
  const Index rows_ = GetParam().first, columns_ = GetParam().second;
};

TEST_P(MuonUpdate, IsOrthogonalAndGoesDown) {
  const std::vector<float> gradient = Gradient(7, rows_, columns_);
  std::vector<float> weight(gradient.size(), 0.0f), momentum(gradient.size(), 0.0f);
  Muon().Update(rows_, columns_, 1.0f, 0.95f, 1.0f, gradient.data(), weight.data(), momentum.data());
  // Gram matrix of the smaller side of the update: close to a multiple of one.
  const Index r = std::min(rows_, columns_);
  std::vector<float> gram(static_cast<std::size_t>(r * r));
  const bool wide = rows_ <= columns_;
  Gemm({.transpose_a = !wide,
        .transpose_b = wide,
        .m = r,
        .n = r,
        .k = std::max(rows_, columns_),
        .lda = columns_,
        .ldb = columns_,
        .ldc = r},
       weight.data(), weight.data(), gram.data());
  const float aspect = wide ? 1.0f : static_cast<float>(rows_) / static_cast<float>(columns_);
  for (Index i = 0; i < r; ++i) {
    for (Index j = 0; j < r; ++j) {
      const float value = gram[static_cast<std::size_t>(i * r + j)] / aspect;
      if (i == j) {
        EXPECT_NEAR(value, 0.9f, 0.55f);  // five iterations bring singular values into about [0.7, 1.2]
      } else {
        EXPECT_NEAR(value, 0.0f, 0.35f);
      }
    }
  }
  EXPECT_LT(std::inner_product(weight.begin(), weight.end(), gradient.begin(), 0.0), 0);
}

TEST_P(MuonUpdate, FollowsItsFormulaForTwoSteps) {
  const float lr = 0.5f, beta = 0.9f, scale = 0.25f;
  std::vector<float> weight = Gradient(9, rows_, columns_), momentum(weight.size(), 0.0f);
  std::vector<double> w(weight.begin(), weight.end()), m(weight.size(), 0.0);
  const double aspect = std::sqrt(std::max(1.0, static_cast<double>(rows_) / static_cast<double>(columns_)));
  Muon muon;
  for (const std::uint64_t stream : {7, 8}) {
    const std::vector<float> gradient = Gradient(stream, rows_, columns_);
    muon.Update(rows_, columns_, lr, beta, scale, gradient.data(), weight.data(), momentum.data());
    Matrix u{static_cast<std::size_t>(rows_), static_cast<std::size_t>(columns_), std::vector<double>(m.size())};
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double g = static_cast<double>(gradient[i]) * scale;
      m[i] = beta * m[i] + (1 - static_cast<double>(beta)) * g;
      u.values[i] = (1 - static_cast<double>(beta)) * g + beta * m[i];
    }
    u = Orthogonalised(u);
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= lr * aspect * u.values[i];
    for (std::size_t i = 0; i < w.size(); ++i) {
      ASSERT_NEAR(momentum[i], m[i], 1e-6) << "step of stream " << stream << ", element " << i;
      ASSERT_NEAR(weight[i], w[i], 1e-4) << "step of stream " << stream << ", element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, MuonUpdate,
                         testing::Values(std::pair<Index, Index>{24, 24}, std::pair<Index, Index>{24, 60},
                                         std::pair<Index, Index>{60, 24}));

}  // namespace
}  // namespace spotlight
