#include "kernels/optimizer.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/buffer.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

// torch.optim.AdamW's documented update, in double, for three steps.
TEST(AdamW, FollowsTheReferenceForThreeSteps) {
  const AdamWSettings settings = {.lr = 3e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
  const float grad_scale = 0.25f;
  for (const std::int64_t size : {1, 3, 17, 24, 96, 100, 20001}) {
    Floats weight = Normals(1, size), m(weight.size()), v(weight.size());
    Doubles w = Widen(weight), first(w.size()), second(w.size());
    for (int step = 1; step <= 3; ++step) {
      const Floats grad = Normals(static_cast<std::uint64_t>(10 + step), size);
      AdamWUpdate(settings, step, size, grad_scale, grad.data(), weight.data(), m.data(), v.data());
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double g = static_cast<double>(grad[i]) * grad_scale;
        w[i] *= 1 - settings.lr * settings.weight_decay;
        first[i] = settings.beta1 * first[i] + (1 - settings.beta1) * g;
        second[i] = settings.beta2 * second[i] + (1 - settings.beta2) * g * g;
        const double m_hat = first[i] / (1 - std::pow(settings.beta1, step));
        const double v_hat = second[i] / (1 - std::pow(settings.beta2, step));
        w[i] -= settings.lr * m_hat / (std::sqrt(v_hat) + settings.eps);
      }
    }
    ExpectClose(weight, w, 5e-7);
    ExpectClose(m, first, 1e-7);
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(v[i], second[i], 1e-6 * second[i]);
  }
}

TEST(SquaredNorm, MatchesDouble) {
  for (const std::int64_t size : {0, 1, 3, 17, 24, 96, 100, 65536, 200003}) {
    const Floats x = Normals(1, size);
    const double expected = Dot(Widen(x), Widen(x));
    EXPECT_NEAR(SquaredNorm(size, x.data()), expected, 1e-12 * expected) << size;
  }
}

TEST(EmaUpdate, MovesTowardsTheWeightAndStaysThere) {
  const Floats weight = Normals(1, 10001);
  Floats ema = Normals(2, 10001);
  Doubles expected;
  for (std::size_t i = 0; i < ema.size(); ++i) expected.push_back(0.9 * ema[i] + 0.1 * weight[i]);
  EmaUpdate(10001, 0.9f, weight.data(), ema.data());
  ExpectClose(ema, expected, 2e-7);
  ema = weight;
  EmaUpdate(10001, 0.9f, weight.data(), ema.data());
  EXPECT_EQ(ema, weight);
}

TEST(Axpy, AddsTheScaledVector) {
  const Floats x = Normals(1, 8195);
  const Floats start = Normals(2, 8195);
  Floats y = start;
  Doubles expected = Widen(start);
  for (std::size_t i = 0; i < y.size(); ++i) expected[i] += -1.5 * x[i];
  Axpy(8195, -1.5f, x.data(), y.data());
  ExpectClose(y, expected, 1e-7);
}

TEST(AllFinite, FindsOneBadValueAnywhere) {
  const std::int64_t size = 200003;
  Floats x = Normals(1, size);
  x[5] = std::numeric_limits<float>::max();
  EXPECT_TRUE(AllFinite(size, x.data()));
  EXPECT_TRUE(AllFinite(0, nullptr));
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{70001}, x.size() - 1}) {
      const float good = x[at];
      x[at] = bad;
      EXPECT_FALSE(AllFinite(size, x.data())) << bad << " at " << at;
      x[at] = good;
    }
  }
}

TEST(Buffer, KeepsItsMemoryWhenItShrinksAndRoundTrips) {
  Buffer buffer(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
  const float* memory = buffer.data();
  buffer.Resize(7);
  buffer.Resize(100);
  EXPECT_EQ(buffer.data(), memory);
  const Floats x = Normals(1, 100);
  buffer.CopyFromHost(x);
  Floats y(100);
  buffer.CopyToHost(y);
  EXPECT_EQ(y, x);
  buffer.Zero();
  buffer.CopyToHost(y);
  EXPECT_EQ(y, Floats(100));
  EXPECT_ANY_THROW(buffer.CopyFromHost(Floats(101)));
  Buffer moved = std::move(buffer);
  EXPECT_EQ(moved.data(), memory);
}

}  // namespace
}  // namespace spotlight
