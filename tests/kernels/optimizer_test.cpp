#include "kernels/optimizer.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/buffer.hpp"
#include "kernels/memory.hpp"
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
  EmaUpdate(10001, 0.9, weight.data(), ema.data());
  ExpectClose(ema, expected, 2e-7);
  ema = weight;
  EmaUpdate(10001, 0.9, weight.data(), ema.data());
  EXPECT_EQ(ema, weight);
}

// As the trainers add the parts of a shard (comm/trainer_group.hpp), wherever values and parts begin.
TEST(SumInOrder, IsTheSumInDoubleRoundedOnceBitForBit) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::int64_t size : {0, 1, 2, 3, 4, 7, 1024, 20001}) {
      for (const std::int64_t shift : {0, 1, 3}) {
        for (const std::int64_t other_shift : {shift, std::int64_t{2}}) {
          const std::int64_t stride = (size + 7) / 4 * 4 + (shift == 3 ? 1 : 0);
          Buffer values(size + 4), parts(ranks * stride + 4);
          const int own = ranks / 2;
          std::vector<Floats> addends;
          for (int p = 0; p < ranks; ++p) {
            addends.push_back(Normals(static_cast<std::uint64_t>(100 * ranks + p), size));
            for (std::size_t i = 0; i < addends.back().size(); i += 3) addends.back()[i] *= p % 2 == 0 ? 1e6f : -1e-3f;
            float* const to = p == own ? values.data() + shift : parts.data() + other_shift + p * stride;
            CopyIn(to, addends.back().data(), addends.back().size() * sizeof(float));
          }
          Floats expected;
          for (std::size_t i = 0; i < static_cast<std::size_t>(size); ++i) {
            double sum = addends[0][i];
            for (std::size_t p = 1; p < addends.size(); ++p) sum += addends[p][i];
            expected.push_back(static_cast<float>(sum));
          }
          SumInOrder(size, ranks, own, parts.data() + other_shift, stride, values.data() + shift);
          Floats sums(expected.size());
          CopyOut(sums.data(), values.data() + shift, sums.size() * sizeof(float));
          ASSERT_EQ(sums, expected) << ranks << " ranks, " << size << " values, " << shift << " and " << other_shift;
        }
      }
    }
  }
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
