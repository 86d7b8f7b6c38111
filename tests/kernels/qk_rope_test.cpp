#include "kernels/qk_rope.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

struct Inputs {
  QkRopeShape shape;
  Floats qkv, norm_q, norm_k, cos, sin;
};

Inputs MakeInputs(std::int64_t batch, std::int64_t head_size) {
  Inputs in;
  in.shape = {.batch = batch, .tokens = 5, .joint_tokens = 9, .first = 3, .heads = 2, .head_size = head_size};
  in.qkv = Normals(1, batch * 5 * 3 * 2 * head_size);
  in.norm_q = Normals(2, head_size);
  in.norm_k = Normals(3, head_size);
  for (const float angle : Normals(4, 5 * head_size / 2)) {
    in.cos.push_back(std::cos(angle));
    in.sin.push_back(std::sin(angle));
  }
  return in;
}

std::int64_t JointSize(const QkRopeShape& s) { return s.batch * s.heads * s.joint_tokens * s.head_size; }

// [q, k, v] one after the other, each [B, H, M, D]; tokens of the other stream are 0.
Doubles Reference(const Inputs& in, const Doubles& qkv, const Doubles& norm_q, const Doubles& norm_k) {
  const QkRopeShape& s = in.shape;
  Doubles out(static_cast<std::size_t>(3 * JointSize(s)));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t n = 0; n < s.tokens; ++n) {
      for (std::int64_t part = 0; part < 3; ++part) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const double* x = qkv.data() + (((b * s.tokens + n) * 3 + part) * s.heads + h) * s.head_size;
          double* y =
              out.data() + part * JointSize(s) + ((b * s.heads + h) * s.joint_tokens + s.first + n) * s.head_size;
          if (part == 2) {
            std::copy_n(x, s.head_size, y);
            continue;
          }
          const Doubles& weight = part == 0 ? norm_q : norm_k;
          double square = 0;
          for (std::int64_t i = 0; i < s.head_size; ++i) square += x[i] * x[i] / static_cast<double>(s.head_size);
          const double r = 1 / std::sqrt(square + s.eps);
          for (std::int64_t i = 0; i < s.head_size / 2; ++i) {
            const auto at = static_cast<std::size_t>(2 * i);
            const auto angle = static_cast<std::size_t>(n * s.head_size / 2 + i);
            const double a = x[2 * i] * r * weight[at], c = x[2 * i + 1] * r * weight[at + 1];
            y[2 * i] = a * in.cos[angle] - c * in.sin[angle];
            y[2 * i + 1] = a * in.sin[angle] + c * in.cos[angle];
          }
        }
      }
    }
  }
  return out;
}

Floats Forward(const Inputs& in) {
  const std::int64_t size = JointSize(in.shape);
  Floats out(static_cast<std::size_t>(3 * size));
  QkRopeForward(in.shape, in.qkv.data(), in.norm_q.data(), in.norm_k.data(), in.cos.data(), in.sin.data(), out.data(),
                out.data() + size, out.data() + 2 * size);
  return out;
}

TEST(QkRope, ForwardMatchesDoubleAndLeavesTheOtherStream) {
  for (const std::int64_t head_size : {2, 6, 24, 34, 96, 128}) {
    const Inputs in = MakeInputs(3, head_size);
    ExpectClose(Forward(in), Reference(in, Widen(in.qkv), Widen(in.norm_q), Widen(in.norm_k)), 2e-6);
  }
}

TEST(QkRope, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t head_size : {6, 24, 34}) {
    const Inputs in = MakeInputs(2, head_size);
    const std::int64_t size = JointSize(in.shape);
    const Floats dout = Normals(5, 3 * size);
    Floats dqkv(in.qkv.size(), 9.0f), dnorm_q(in.norm_q.size(), 0.5f), dnorm_k(in.norm_k.size(), 0.5f);
    QkRopeBackward(in.shape, in.qkv.data(), in.norm_q.data(), in.norm_k.data(), in.cos.data(), in.sin.data(),
                   dout.data(), dout.data() + size, dout.data() + 2 * size, dqkv.data(), dnorm_q.data(),
                   dnorm_k.data());
    const Doubles qkv = Widen(in.qkv), norm_q = Widen(in.norm_q), norm_k = Widen(in.norm_k), grad = Widen(dout);
    ExpectClose(dqkv,
                NumericGradient(qkv, [&](const Doubles& at) { return Dot(Reference(in, at, norm_q, norm_k), grad); }),
                2e-5);
    ExpectClose(
        dnorm_q,
        Plus(NumericGradient(norm_q, [&](const Doubles& at) { return Dot(Reference(in, qkv, at, norm_k), grad); }),
             0.5),
        2e-5);
    ExpectClose(
        dnorm_k,
        Plus(NumericGradient(norm_k, [&](const Doubles& at) { return Dot(Reference(in, qkv, norm_q, at), grad); }),
             0.5),
        2e-5);

    Floats only_dqkv(in.qkv.size());
    QkRopeBackward(in.shape, in.qkv.data(), in.norm_q.data(), in.norm_k.data(), in.cos.data(), in.sin.data(),
                   dout.data(), dout.data() + size, dout.data() + 2 * size, only_dqkv.data(), nullptr, nullptr);
    EXPECT_EQ(only_dqkv, dqkv);
  }
}

TEST(QkRope, ASampleDoesNotFeelItsBatch) {
  const Inputs in = MakeInputs(3, 24);
  const Floats together = Forward(in);
  Inputs alone = in;
  alone.shape.batch = 1;
  const auto sample_size = static_cast<std::int64_t>(in.qkv.size()) / 3;
  alone.qkv = Slice(in.qkv, 2 * sample_size, sample_size);
  const Floats single = Forward(alone);
  const std::int64_t size = JointSize(alone.shape);
  for (std::int64_t part = 0; part < 3; ++part) {
    EXPECT_EQ(Slice(single, part * size, size), Slice(together, (part * 3 + 2) * size, size)) << part;
  }
}

}  // namespace
}  // namespace spotlight
