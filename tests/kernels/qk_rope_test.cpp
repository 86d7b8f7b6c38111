// QkRope against double, of samples of equal and of different lengths, and of slices of a sample.
#include "kernels/qk_rope.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

struct Inputs {
  TokenRowTable text, image;
  std::vector<std::int64_t> position;  // empty: 0 for all
  QkRopeShape shape;                   // Shape() fills in what points into this struct
  Floats qkv, norm_q, norm_k, cos, sin;

  QkRopeShape Shape() const {
    QkRopeShape result = shape;
    result.text = text.view();
    result.image = image.view();
    result.position = position.empty() ? nullptr : position.data();
    return result;
  }
  TokenRows Rows() const { return (shape.of_image ? image : text).view(); }
};

// Of the stream of `image` if of_image, else of that of `text`; the rope table has `positions` rows.
Inputs MakeInputs(const std::vector<std::int64_t>& text, const std::vector<std::int64_t>& image, bool of_image,
                  std::int64_t head_size, std::int64_t positions = 70) {
  Inputs in;
  in.text.Assign(text);
  in.image.Assign(image);
  in.shape = {.of_image = of_image, .heads = 2, .head_size = head_size};
  in.qkv = Normals(1, in.Rows().rows() * 3 * 2 * head_size);
  in.norm_q = Normals(2, head_size);
  in.norm_k = Normals(3, head_size);
  for (const float angle : Normals(4, positions * head_size / 2)) {
    in.cos.push_back(std::cos(angle));
    in.sin.push_back(std::sin(angle));
  }
  return in;
}

std::int64_t JointSize(const QkRopeShape& s) { return (s.text.rows() + s.image.rows()) * s.heads * s.head_size; }

// [q, k, v] one after the other, each in attention layout; tokens of the other stream are 0.
Doubles Reference(const Inputs& in, const Doubles& qkv, const Doubles& norm_q, const Doubles& norm_k) {
  const QkRopeShape s = in.Shape();
  const TokenRows rows = in.Rows();
  Doubles out(static_cast<std::size_t>(3 * JointSize(s)));
  std::int64_t joint = 0;  // where the sample starts in q, k and v
  for (std::int64_t b = 0; b < rows.batch; ++b) {
    const std::int64_t text = s.text.tokens(b), tokens = text + s.image.tokens(b);
    for (std::int64_t n = 0; n < rows.tokens(b); ++n) {
      const std::int64_t position = n + (in.position.empty() ? 0 : in.position[static_cast<std::size_t>(b)]);
      for (std::int64_t part = 0; part < 3; ++part) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const double* x = qkv.data() + (((rows.first[b] + n) * 3 + part) * s.heads + h) * s.head_size;
          double* y =
              out.data() + part * JointSize(s) + joint + (h * tokens + (s.of_image ? text : 0) + n) * s.head_size;
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
            const auto angle = static_cast<std::size_t>(position * s.head_size / 2 + i);
            const double a = x[2 * i] * r * weight[at], c = x[2 * i + 1] * r * weight[at + 1];
            y[2 * i] = a * in.cos[angle] - c * in.sin[angle];
            y[2 * i + 1] = a * in.sin[angle] + c * in.cos[angle];
          }
        }
      }
    }
    joint += s.heads * tokens * s.head_size;
  }
  return out;
}

Floats Forward(const Inputs& in) {
  const std::int64_t size = JointSize(in.Shape());
  Floats out(static_cast<std::size_t>(3 * size));
  QkRopeForward(in.Shape(), in.qkv.data(), in.norm_q.data(), in.norm_k.data(), in.cos.data(), in.sin.data(), out.data(),
                out.data() + size, out.data() + 2 * size);
  return out;
}

struct Gradients {
  Floats qkv, norm_q, norm_k;
};

// Those of the norms are accumulated: they start at 0.5.
Gradients Backward(const Inputs& in, const Floats& dout) {
  const std::int64_t size = JointSize(in.Shape());
  Gradients d = {Floats(in.qkv.size(), 9.0f), Floats(in.norm_q.size(), 0.5f), Floats(in.norm_k.size(), 0.5f)};
  QkRopeBackward(in.Shape(), in.qkv.data(), in.norm_q.data(), in.norm_k.data(), in.cos.data(), in.sin.data(),
                 dout.data(), dout.data() + size, dout.data() + 2 * size, d.qkv.data(), d.norm_q.data(),
                 d.norm_k.data());
  return d;
}

// Equal and different lengths, none, and more than one token block.
std::vector<Inputs> Batches(std::int64_t head_size) {
  std::vector<Inputs> batches;
  for (const bool of_image : {false, true}) {
    batches.push_back(MakeInputs({3, 3, 3}, {5, 5, 5}, of_image, head_size));
    batches.push_back(MakeInputs({4, 0, 35}, {2, 40, 1}, of_image, head_size));
    batches.push_back(batches.back());
    batches.back().position = {7, 0, 30};
  }
  return batches;
}

TEST(QkRope, ForwardMatchesDoubleAndLeavesTheOtherStream) {
  for (const std::int64_t head_size : {2, 6, 24, 34, 96, 128}) {
    for (const Inputs& in : Batches(head_size)) {
      ExpectClose(Forward(in), Reference(in, Widen(in.qkv), Widen(in.norm_q), Widen(in.norm_k)), 2e-6);
    }
  }
}

TEST(QkRope, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t head_size : {6, 24, 34}) {
    for (const bool ragged : {false, true}) {
      Inputs in = ragged ? MakeInputs({4, 0}, {2, 3}, true, head_size) : MakeInputs({3, 3}, {5, 5}, false, head_size);
      if (ragged) in.position = {1, 5};
      const std::int64_t size = JointSize(in.Shape());
      const Floats dout = Normals(5, 3 * size);
      const Gradients d = Backward(in, dout);
      const Doubles qkv = Widen(in.qkv), norm_q = Widen(in.norm_q), norm_k = Widen(in.norm_k), grad = Widen(dout);
      ExpectClose(d.qkv,
                  NumericGradient(qkv, [&](const Doubles& at) { return Dot(Reference(in, at, norm_q, norm_k), grad); }),
                  2e-5);
      ExpectClose(
          d.norm_q,
          Plus(NumericGradient(norm_q, [&](const Doubles& at) { return Dot(Reference(in, qkv, at, norm_k), grad); }),
               0.5),
          2e-5);
      ExpectClose(
          d.norm_k,
          Plus(NumericGradient(norm_k, [&](const Doubles& at) { return Dot(Reference(in, qkv, norm_q, at), grad); }),
               0.5),
          2e-5);

      Floats only_dqkv(in.qkv.size());
      QkRopeBackward(in.Shape(), in.qkv.data(), in.norm_q.data(), in.norm_k.data(), in.cos.data(), in.sin.data(),
                     dout.data(), dout.data() + size, dout.data() + 2 * size, only_dqkv.data(), nullptr, nullptr);
      EXPECT_EQ(only_dqkv, d.qkv);
    }
  }
}

// The gradients of the norm weights are sums over all tokens of all samples, in several blocks.
TEST(QkRope, NormGradientsSumOverALongRaggedBatch) {
  const Inputs in = MakeInputs({4, 0, 35}, {2, 40, 1}, false, 24);
  const Floats dout = Normals(5, 3 * JointSize(in.Shape()));
  const Doubles qkv = Widen(in.qkv), norm_q = Widen(in.norm_q), norm_k = Widen(in.norm_k), grad = Widen(dout);
  const auto loss = [&](const Doubles& at) { return Dot(Reference(in, qkv, at, norm_k), grad); };
  ExpectClose(Backward(in, dout).norm_q, Plus(NumericGradient(norm_q, loss), 0.5), 2e-5);
}

TEST(QkRope, ASampleDoesNotFeelItsBatch) {
  for (const std::int64_t head_size : {24, 34}) {
    for (const Inputs& in : Batches(head_size)) {
      const QkRopeShape all = in.Shape();
      const TokenRows rows = in.Rows();
      const std::int64_t part_size = JointSize(all), row_size = 3 * all.heads * head_size;
      const Floats together = Forward(in), dout = Normals(5, 3 * part_size);
      const Floats dqkv = Backward(in, dout).qkv;
      for (std::int64_t b = 0; b < rows.batch; ++b) {
        Inputs alone = in;
        alone.text.Assign({all.text.tokens(b)});
        alone.image.Assign({all.image.tokens(b)});
        if (!in.position.empty()) alone.position = {in.position[static_cast<std::size_t>(b)]};
        alone.qkv = SampleOf(in.qkv, rows, b, row_size);
        const std::int64_t size = JointSize(alone.Shape());
        const std::int64_t first = (all.text.first[b] + all.image.first[b]) * all.heads * head_size;
        Floats expected, its_dout;
        for (std::int64_t part = 0; part < 3; ++part) {
          const Floats values = Slice(together, part * part_size + first, size);
          const Floats gradients = Slice(dout, part * part_size + first, size);
          expected.insert(expected.end(), values.begin(), values.end());
          its_dout.insert(its_dout.end(), gradients.begin(), gradients.end());
        }
        EXPECT_EQ(Forward(alone), expected) << b;
        EXPECT_EQ(Backward(alone, its_dout).qkv, SampleOf(dqkv, rows, b, row_size)) << b;
      }
    }
  }
}

// A rank that holds tokens [first, first + count) of a sample gets the whole's numbers from position = first.
TEST(QkRope, ASliceOfTheTokensFromItsPositionEqualsThatOfTheWhole) {
  const std::int64_t tokens = 50, first = 13, count = 34, head_size = 24, heads = 2, row_size = 3 * heads * head_size;
  const Inputs whole = MakeInputs({0}, {tokens}, true, head_size);
  Inputs slice = whole;
  slice.image.Assign({count});
  slice.position = {first};
  slice.qkv = Slice(whole.qkv, first * row_size, count * row_size);
  const Floats of_whole = Forward(whole), of_slice = Forward(slice);
  const Floats dout = Normals(5, 3 * JointSize(whole.Shape()));
  Floats its_dout;
  for (std::int64_t row = 0; row < 3 * heads; ++row) {  // of q, k, v and head
    const std::int64_t at = (row * tokens + first) * head_size, size = count * head_size;
    EXPECT_EQ(Slice(of_slice, row * size, size), Slice(of_whole, at, size)) << row;
    const Floats gradients = Slice(dout, at, size);
    its_dout.insert(its_dout.end(), gradients.begin(), gradients.end());
  }
  EXPECT_EQ(Backward(slice, its_dout).qkv, Slice(Backward(whole, dout).qkv, first * row_size, count * row_size));
}

}  // namespace
}  // namespace spotlight
