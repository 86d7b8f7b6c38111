// Attention against a plain version in double, and the promises of kernels/attention.hpp: masked keys have no
// influence and no gradient, and a sample's bits do not depend on its batch.
#include "kernels/attention.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

template <typename Real>
struct Tensors {
  std::vector<Real> q, k, v, out_text, out_image, lse, dout_text, dout_image, dq, dk, dv;
};

struct Problem {
  TokenRowTable text, image;
  std::int64_t heads, head_size;
  std::vector<std::uint8_t> mask;  // empty: none
  Tensors<float> x;

  AttentionShape shape() const {
    return {.text = text.view(), .image = image.view(), .heads = heads, .head_size = head_size};
  }
  const std::uint8_t* text_mask() const { return mask.empty() ? nullptr : mask.data(); }
};

Floats Normal(std::uint64_t key, std::int64_t size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(key, 0, values);
  return values;
}

using Lengths = std::vector<std::int64_t>;

Problem MakeProblem(std::int64_t heads, std::int64_t head_size, const Lengths& text, const Lengths& image,
                    bool masked) {
  Problem problem{TokenRowTable(text), TokenRowTable(image), heads, head_size, {}, {}};
  const AttentionShape shape = problem.shape();
  const std::int64_t rows = shape.text.rows() + shape.image.rows(), width = heads * head_size;
  Tensors<float>& x = problem.x;
  x.q = Normal(1, rows * width), x.k = Normal(2, rows * width), x.v = Normal(3, rows * width);
  x.dout_text = Normal(4, shape.text.rows() * width);
  x.dout_image = Normal(5, shape.image.rows() * width);
  x.out_text.assign(x.dout_text.size(), -9.0f);
  x.out_image.assign(x.dout_image.size(), -9.0f);
  x.lse.assign(static_cast<std::size_t>(rows * heads), -9.0f);
  x.dq.assign(x.q.size(), -9.0f), x.dk = x.dq, x.dv = x.dq;
  if (masked) {
    for (std::int64_t i = 0; i < shape.text.rows(); ++i) {
      problem.mask.push_back(UniformInt(6, static_cast<std::uint64_t>(i), 3) != 0);  // holes
    }
  }
  return problem;
}

void Attend(Problem* problem, bool with_text_gradient = true) {
  Tensors<float>& x = problem->x;
  AttentionForward(problem->shape(), x.q.data(), x.k.data(), x.v.data(), problem->text_mask(), x.out_text.data(),
                   x.out_image.data(), x.lse.data());
  AttentionBackward(problem->shape(), x.q.data(), x.k.data(), x.v.data(), problem->text_mask(), x.out_text.data(),
                    x.out_image.data(), x.lse.data(), with_text_gradient ? x.dout_text.data() : nullptr,
                    x.dout_image.data(), x.dq.data(), x.dk.data(), x.dv.data());
}

// Softmax attention and its gradient by the definition, with whole rows of probabilities.
Tensors<double> Reference(const Problem& problem) {
  const AttentionShape shape = problem.shape();
  const std::int64_t size = shape.head_size, width = shape.heads * size;
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));
  const Tensors<float>& x = problem.x;
  Tensors<double> y;
  y.out_text.resize(x.out_text.size()), y.out_image.resize(x.out_image.size()), y.lse.resize(x.lse.size());
  y.dq.resize(x.q.size()), y.dk.resize(x.q.size()), y.dv.resize(x.q.size());
  std::int64_t first = 0;  // row of the head's first token in attention layout
  for (std::int64_t item = 0; item < shape.text.batch * shape.heads; ++item) {
    const std::int64_t b = item / shape.heads, h = item % shape.heads;
    const std::int64_t text = shape.text.tokens(b), n = text + shape.image.tokens(b);
    const auto at = [&](std::int64_t token, std::int64_t d) { return (first + token) * size + d; };
    const auto seen = [&](std::int64_t j) {
      return j >= text || problem.mask.empty() || problem.mask[shape.text.first[b] + j] != 0;
    };
    for (std::int64_t i = 0; i < n; ++i) {
      const bool is_text = i < text;
      const std::int64_t row = (is_text ? shape.text.first[b] + i : shape.image.first[b] + i - text) * width + h * size;
      double* out = (is_text ? y.out_text : y.out_image).data() + row;
      const float* dout = (is_text ? x.dout_text : x.dout_image).data() + row;
      std::vector<double> p(n, 0.0);
      double sum = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < size; ++d) score += static_cast<double>(x.q[at(i, d)]) * x.k[at(j, d)];
        p[j] = seen(j) ? std::exp(scale * score) : 0.0;
        sum += p[j];
      }
      y.lse[first + i] = std::log(sum);
      double delta = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        p[j] /= sum;
        for (std::int64_t d = 0; d < size; ++d) out[d] += p[j] * x.v[at(j, d)];
      }
      for (std::int64_t d = 0; d < size; ++d) delta += out[d] * dout[d];
      for (std::int64_t j = 0; j < n; ++j) {
        double dp = 0;
        for (std::int64_t d = 0; d < size; ++d) dp += static_cast<double>(dout[d]) * x.v[at(j, d)];
        const double ds = scale * p[j] * (dp - delta);
        for (std::int64_t d = 0; d < size; ++d) {
          y.dv[at(j, d)] += p[j] * dout[d];
          y.dq[at(i, d)] += ds * x.k[at(j, d)];
          y.dk[at(j, d)] += ds * x.q[at(i, d)];
        }
      }
    }
    first += n;
  }
  return y;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& expected, double tolerance,
                const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], tolerance) << what << " at " << i;
}

void ExpectReference(const Problem& problem, const std::string& what) {
  const Tensors<double> expected = Reference(problem);
  ExpectNear(problem.x.out_text, expected.out_text, 5e-6, what + "out_text");
  ExpectNear(problem.x.out_image, expected.out_image, 5e-6, what + "out_image");
  ExpectNear(problem.x.lse, expected.lse, 5e-6, what + "lse");
  ExpectNear(problem.x.dq, expected.dq, 2e-5, what + "dq");
  ExpectNear(problem.x.dk, expected.dk, 2e-5, what + "dk");
  ExpectNear(problem.x.dv, expected.dv, 2e-5, what + "dv");
}

TEST(Attention, AgreesWithDouble) {
  // D, T, S: sizes of the models, odd ones, one token, and several blocks of queries and keys.
  const std::int64_t sizes[][3] = {{24, 7, 16}, {2, 0, 1},   {6, 3, 2},   {32, 0, 64},   {128, 5, 60},
                                   {24, 1, 8},  {6, 40, 90}, {10, 0, 65}, {24, 30, 120}, {8, 150, 200}};
  for (const auto& [head_size, text, image] : sizes) {
    for (const bool masked : {false, true}) {
      Problem problem = MakeProblem(3, head_size, {text, text}, {image, image}, masked && text > 0);
      Attend(&problem);
      ExpectReference(problem, "D " + std::to_string(head_size) + " T " + std::to_string(text) + " S " +
                                   std::to_string(image) + (masked ? " masked " : " "));
    }
  }
}

// Samples whose lengths differ in text, in image and in both: none, one block of queries and keys, and several.
const Lengths kText = {7, 0, 150, 1}, kImage = {16, 90, 5, 300};

TEST(Attention, OfARaggedBatchAgreesWithDouble) {
  for (const std::int64_t head_size : {6, 24}) {
    for (const bool masked : {false, true}) {
      Problem problem = MakeProblem(2, head_size, kText, kImage, masked);
      Attend(&problem);
      ExpectReference(problem, "D " + std::to_string(head_size) + (masked ? " masked " : " "));
    }
  }
}

// Ties the backward to the forward itself: the directional derivative of <dout, out> by central differences.
TEST(Attention, GradientMatchesFiniteDifferences) {
  Problem problem = MakeProblem(2, 6, {5}, {9}, true);
  Attend(&problem);
  const auto loss = [](Problem moved) {
    Attend(&moved);
    double sum = 0;
    for (std::size_t i = 0; i < moved.x.out_text.size(); ++i) {
      sum += static_cast<double>(moved.x.out_text[i]) * moved.x.dout_text[i];
    }
    for (std::size_t i = 0; i < moved.x.out_image.size(); ++i) {
      sum += static_cast<double>(moved.x.out_image[i]) * moved.x.dout_image[i];
    }
    return sum;
  };
  const std::pair<std::vector<float> Tensors<float>::*, std::vector<float> Tensors<float>::*> pairs[] = {
      {&Tensors<float>::q, &Tensors<float>::dq},
      {&Tensors<float>::k, &Tensors<float>::dk},
      {&Tensors<float>::v, &Tensors<float>::dv}};
  for (const auto& [input, gradient] : pairs) {
    const auto direction = Normal(7, static_cast<std::int64_t>(problem.x.q.size()));
    const float step = 0.01f;
    Problem up = problem, down = problem;
    double expected = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      (up.x.*input)[i] += step * direction[i];
      (down.x.*input)[i] -= step * direction[i];
      expected += static_cast<double>((problem.x.*gradient)[i]) * direction[i];
    }
    EXPECT_NEAR((loss(up) - loss(down)) / (2.0 * step), expected, 5e-3 * (1 + std::abs(expected)));
  }
}

TEST(Attention, MaskedKeysHaveNoInfluenceAndNoGradient) {
  Problem problem = MakeProblem(2, 24, {7}, {16}, true);
  problem.mask = {1, 0, 1, 1, 0, 0, 1};
  Attend(&problem);
  Problem changed = problem;
  for (std::int64_t h = 0; h < 2; ++h) {
    for (const std::int64_t token : {1, 4, 5}) {
      for (std::int64_t d = 0; d < 24; ++d) {
        const auto at = static_cast<std::size_t>((h * 23 + token) * 24 + d);
        EXPECT_EQ(problem.x.dk[at], 0.0f);
        EXPECT_EQ(problem.x.dv[at], 0.0f);
        changed.x.k[at] = 1e30f;
        changed.x.v[at] = -1e30f;
      }
    }
  }
  Attend(&changed);
  EXPECT_EQ(changed.x.out_image, problem.x.out_image);
  EXPECT_EQ(changed.x.out_text, problem.x.out_text);
  EXPECT_EQ(changed.x.dq, problem.x.dq);
  EXPECT_EQ(changed.x.dk, problem.x.dk);
}

TEST(Attention, NoTextGradientIsAZeroTextGradient) {
  Problem null = MakeProblem(2, 24, {70, 30}, {80, 110}, true);
  Problem zero = null;
  zero.x.dout_text.assign(zero.x.dout_text.size(), 0.0f);
  Attend(&null, false);
  Attend(&zero);
  for (std::size_t i = 0; i < null.x.dq.size(); ++i) {
    ASSERT_NEAR(null.x.dq[i], zero.x.dq[i], 1e-6) << i;
    ASSERT_NEAR(null.x.dk[i], zero.x.dk[i], 1e-6) << i;
    ASSERT_NEAR(null.x.dv[i], zero.x.dv[i], 1e-6) << i;
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Problem problem = MakeProblem(1, 8, {0}, {200}, false);
  for (float& value : problem.x.q) value *= 100.0f;
  Attend(&problem);
  for (const float value : problem.x.out_image) ASSERT_LT(std::abs(value), 10.0f);  // a mean of normal values
  for (const float value : problem.x.dv) ASSERT_TRUE(std::isfinite(value));
}

TEST(Attention, ASampleDoesNotDependOnItsBatch) {
  for (const bool masked : {false, true}) {
    for (const bool with_text_gradient : {false, true}) {
      Problem all = MakeProblem(3, 24, kText, kImage, masked);
      Attend(&all, with_text_gradient);
      const AttentionShape shape = all.shape();
      const std::int64_t width = 3 * 24;
      for (std::int64_t b = 0; b < shape.text.batch; ++b) {
        Problem one = MakeProblem(3, 24, {shape.text.tokens(b)}, {shape.image.tokens(b)}, false);
        if (masked) {
          one.mask.assign(all.mask.begin() + shape.text.first[b], all.mask.begin() + shape.text.first[b + 1]);
        }
        // What the sample owns of an array with `size` numbers for each token.
        const std::int64_t first = shape.text.first[b] + shape.image.first[b];
        const std::int64_t tokens = shape.text.tokens(b) + shape.image.tokens(b);
        const auto part = [&](const Floats& whole, std::int64_t size) {
          return Slice(whole, first * size, tokens * size);
        };
        one.x.q = part(all.x.q, width), one.x.k = part(all.x.k, width), one.x.v = part(all.x.v, width);
        one.x.dout_text = SampleOf(all.x.dout_text, shape.text, b, width);
        one.x.dout_image = SampleOf(all.x.dout_image, shape.image, b, width);
        Attend(&one, with_text_gradient);
        EXPECT_EQ(one.x.out_text, SampleOf(all.x.out_text, shape.text, b, width)) << b;
        EXPECT_EQ(one.x.out_image, SampleOf(all.x.out_image, shape.image, b, width)) << b;
        EXPECT_EQ(one.x.lse, part(all.x.lse, 3)) << b;
        EXPECT_EQ(one.x.dq, part(all.x.dq, width)) << b;
        EXPECT_EQ(one.x.dk, part(all.x.dk, width)) << b;
        EXPECT_EQ(one.x.dv, part(all.x.dv, width)) << b;
      }
    }
  }
}

TEST(Attention, NeedsTheSameSamplesInBothStreams) {
  const TokenRowTable one({3}), two({3, 3});
  try {
    AttentionForward({.text = one.view(), .image = two.view(), .heads = 1, .head_size = 2}, nullptr, nullptr, nullptr,
                     nullptr, nullptr, nullptr, nullptr);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("the same samples in both streams"), std::string::npos) << error.what();
  }
}

TEST(Attention, LeavesOutTheTextQueriesWhenTheirOutputIsNotWanted) {
  for (const bool masked : {false, true}) {
    Problem problem = MakeProblem(2, 24, kText, kImage, masked);
    Attend(&problem);
    const Tensors<float>& x = problem.x;
    const AttentionShape shape = problem.shape();
    Floats out_image(x.out_image.size()), lse(x.lse.size());
    AttentionForward(shape, x.q.data(), x.k.data(), x.v.data(), problem.text_mask(), nullptr, out_image.data(),
                     lse.data());
    EXPECT_EQ(out_image, x.out_image);
    std::size_t at = 0;
    for (std::int64_t b = 0; b < shape.text.batch; ++b) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t i = 0; i < shape.text.tokens(b) + shape.image.tokens(b); ++i, ++at) {
          ASSERT_EQ(lse[at], i < shape.text.tokens(b) ? 0 : x.lse[at]) << b << " " << h << " " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace spotlight
