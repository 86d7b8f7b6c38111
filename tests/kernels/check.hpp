// What the kernel tests share: repeatable inputs, comparison with a double reference, numeric gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

inline Floats Normals(std::uint64_t key, std::int64_t size) {
  Floats values(static_cast<std::size_t>(size));
  FillNormal(StreamKey({key}), 0, values);
  return values;
}

inline Doubles Widen(const Floats& values) { return {values.begin(), values.end()}; }

// |actual - expected| <= tolerance (1 + |expected|) for every element.
inline void ExpectClose(const Floats& actual, const Doubles& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::fabs(actual[i] - expected[i]), tolerance * (1 + std::fabs(expected[i])))
        << "element " << i << ": " << actual[i] << ", expected " << expected[i];
  }
}

inline double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Central differences of loss(x) at `x`.
template <typename Loss>
Doubles NumericGradient(Doubles x, const Loss& loss) {
  constexpr double kStep = 1e-5;
  Doubles gradient(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double centre = x[i];
    x[i] = centre + kStep;
    const double above = loss(x);
    x[i] = centre - kStep;
    gradient[i] = (above - loss(x)) / (2 * kStep);
    x[i] = centre;
  }
  return gradient;
}

// Elements [begin, begin + size) of `values`.
inline Floats Slice(const Floats& values, std::int64_t begin, std::int64_t size) {
  return {values.begin() + begin, values.begin() + begin + size};
}

// What sample b owns of `values` with `width` numbers for each row.
inline Floats SampleOf(const Floats& values, const TokenRows& rows, std::int64_t b, std::int64_t width) {
  return Slice(values, rows.first[b] * width, rows.tokens(b) * width);
}

// Adds `start` to every element: what an accumulating kernel should have left.
inline Doubles Plus(Doubles values, double start) {
  std::for_each(values.begin(), values.end(), [=](double& value) { value += start; });
  return values;
}

}  // namespace spotlight
