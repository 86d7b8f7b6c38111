// The fit of TeaCache's polynomial.
#include "driver/calibrate.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace spotlight {
namespace {

double Value(const std::array<double, 5>& polynomial, double x) {
  double sum = 0;
  for (const double coefficient : polynomial) sum = sum * x + coefficient;
  return sum;
}

double SquaredError(const std::array<double, 5>& polynomial, const std::vector<double>& x,
                    const std::vector<double>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(Value(polynomial, x[i]) - y[i], 2);
  return sum;
}

TEST(FitPolynomial, FindsThePolynomialOfItsPoints) {
  const std::array<double, 5> wanted{-450, 280, -45, 3.2, -0.02};  // Qwen-Image's
  std::vector<double> x, y;
  for (int i = 0; i < 40; ++i) {
    x.push_back(0.01 + 0.004 * i);
    y.push_back(Value(wanted, x.back()));
  }
  const std::array<double, 5> found = FitPolynomial(x, y);
  for (std::size_t k = 0; k < 5; ++k) EXPECT_NEAR(found[k], wanted[k], 1e-7 * std::abs(wanted[k])) << k;
}

TEST(FitPolynomial, HasTheLeastSquaredError) {
  std::vector<double> x, y;
  for (int i = 0; i < 30; ++i) {
    x.push_back(0.1 + 0.01 * i);
    y.push_back(std::sin(30 * x.back()));
  }
  const std::array<double, 5> best = FitPolynomial(x, y);
  for (std::size_t k = 0; k < 5; ++k) {
    for (const double step : {-1e-4, 1e-4}) {
      std::array<double, 5> other = best;
      other[k] += step;
      EXPECT_GT(SquaredError(other, x, y), SquaredError(best, x, y)) << k;
    }
  }
}

TEST(FitPolynomial, LeavesOutPowersThatThePointsDoNotDetermine) {
  const std::array<double, 5> line = FitPolynomial(std::vector<double>{1, 1, 3}, std::vector<double>{2, 4, 7});
  EXPECT_NEAR(Value(line, 1), 3, 1e-12);
  EXPECT_NEAR(Value(line, 3), 7, 1e-12);
  EXPECT_EQ(line[0], 0);
  EXPECT_EQ(line[2], 0);
  const std::array<double, 5> zero = FitPolynomial(std::vector<double>{0, 0}, std::vector<double>{1, 3});
  EXPECT_NEAR(Value(zero, 0), 2, 1e-12);
}

}  // namespace
}  // namespace spotlight
