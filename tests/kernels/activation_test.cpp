#include "kernels/activation.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numbers>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

double GeluReference(double z) {
  return z / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

double GeluSlope(double z) {
  const double root = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(root * (z + 0.044715 * z * z * z));
  return (1 + t) / 2 + z / 2 * (1 - t * t) * root * (1 + 3 * 0.044715 * z * z);
}

double SiluReference(double z) { return z / (1 + std::exp(-z)); }

double SiluSlope(double z) {
  const double s = 1 / (1 + std::exp(-z));
  return s + z * s * (1 - s);
}

template <typename Function>
Doubles Map(const Floats& x, const Function& function) {
  Doubles y;
  for (const float value : x) y.push_back(function(value));
  return y;
}

// Both signs, dense near 0, beyond the flat part, and an odd size for the loops' tails.
Floats Inputs() {
  Floats x = Normals(1, 20003);
  for (std::size_t i = 0; i < x.size(); i += 2) x[i] *= 8;
  x[0] = 0;
  x[1] = 100;
  x[2] = -100;
  x[3] = 1e30f;
  x[4] = -1e30f;
  return x;
}

std::int64_t Size(const Floats& x) { return static_cast<std::int64_t>(x.size()); }

TEST(Gelu, ForwardMatchesTheTanhForm) {
  const Floats x = Inputs();
  Floats y(x.size());
  GeluForward(Size(x), x.data(), y.data());
  ExpectClose(y, Map(x, GeluReference), 3e-7);
  Floats in_place = x;
  GeluForward(Size(x), in_place.data(), in_place.data());
  EXPECT_EQ(in_place, y);
}

TEST(Gelu, BackwardMatchesTheDerivative) {
  const Floats x = Inputs();
  const Floats dy = Normals(2, Size(x));
  Floats dx(x.size());
  GeluBackward(Size(x), x.data(), dy.data(), dx.data());
  Doubles expected = Map(x, [](double z) { return std::fabs(z) > 20 ? (z > 0 ? 1.0 : 0.0) : GeluSlope(z); });
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] *= dy[i];
  ExpectClose(dx, expected, 1e-6);
  Floats in_place = dy;
  GeluBackward(Size(x), x.data(), in_place.data(), in_place.data());
  EXPECT_EQ(in_place, dx);
}

TEST(Gelu, SlopeOfTheReferenceIsTheDerivative) {
  for (double z = -4; z < 4; z += 0.37) {
    EXPECT_NEAR(GeluSlope(z), (GeluReference(z + 1e-5) - GeluReference(z - 1e-5)) / 2e-5, 1e-9);
    EXPECT_NEAR(SiluSlope(z), (SiluReference(z + 1e-5) - SiluReference(z - 1e-5)) / 2e-5, 1e-9);
  }
}

TEST(Silu, ForwardAndBackwardMatchDouble) {
  const Floats x = Inputs();
  const Floats dy = Normals(3, Size(x));
  Floats y(x.size());
  SiluForward(Size(x), x.data(), y.data());
  ExpectClose(y, Map(x, SiluReference), 3e-7);
  Floats dx(x.size(), 0.5f);  // accumulated
  SiluBackward(Size(x), x.data(), dy.data(), dx.data());
  Doubles expected = Map(x, [](double z) { return std::fabs(z) > 500 ? (z > 0 ? 1.0 : 0.0) : SiluSlope(z); });
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = expected[i] * dy[i] + 0.5;
  ExpectClose(dx, expected, 1e-6);
}

TEST(Activation, NanStaysNan) {
  const Floats nan{std::numeric_limits<float>::quiet_NaN()};
  Floats y(1);
  GeluForward(1, nan.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
  SiluForward(1, nan.data(), y.data());
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST(TimeSinusoid, CosinesThenSinesOfAThousandT) {
  const Floats t = {0.0f, 0.02f, 0.5f, 1.0f};
  Floats e(t.size() * 256);
  TimeSinusoid(4, t.data(), e.data());
  for (std::size_t row = 0; row < t.size(); ++row) {
    for (std::size_t j = 0; j < 128; ++j) {
      const double angle = 1000.0 * t[row] * std::pow(10000.0, -static_cast<double>(j) / 128);
      // The angle is an fp32 number: its rounding, not the function's, sets the bound.
      const double bound = 2e-7 + 4e-7 * angle;
      ASSERT_NEAR(e[row * 256 + j], std::cos(angle), bound) << row << " " << j;
      ASSERT_NEAR(e[row * 256 + 128 + j], std::sin(angle), bound) << row << " " << j;
    }
  }
  EXPECT_EQ(e[0], 1);
  EXPECT_EQ(e[128], 0);
}

}  // namespace
}  // namespace spotlight
