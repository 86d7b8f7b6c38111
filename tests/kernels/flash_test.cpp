// Attention of the CUDA back end in bf16 against a plain version in double of the same rounded inputs: on the CPU its
// own kernels (kernels/cuda/on_cpu.hpp), on a device also cuDNN's, which takes what has no mask. In fp32
// attention_test.cpp checks them. Also the tensor cores' instructions, as kernels/cuda/mma.cuh describes them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/bfloat16.hpp"
#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/mma.cuh"
#include "tests/kernels/check.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"

namespace spotlight {
namespace {

using Flash = CudaKernels;
using Halves = std::vector<Bfloat16>;
using Lengths = std::vector<std::int64_t>;

Halves Rounded(const Floats& values) {
  Halves halves;
  for (const float value : values) halves.push_back(ToBfloat16(value));
  return halves;
}

struct Problem {
  TokenRowTable text, image;
  std::int64_t heads, head_size;
  bool masked;
  std::vector<std::uint8_t> mask;
  Halves q, k, v, dout_text, dout_image, out_text, out_image, dq, dk, dv;
  Floats lse;

  enum Contents { kNormal, kEmpty };
  Problem(std::int64_t heads, std::int64_t head_size, const Lengths& text_tokens, const Lengths& image_tokens,
          bool masked, Contents contents = kNormal)
      : text(text_tokens), image(image_tokens), heads(heads), head_size(head_size), masked(masked) {
    if (contents == kEmpty) return;
    const std::int64_t width = heads * head_size;
    const std::int64_t text_rows = text.view().rows(), image_rows = image.view().rows();
    q = Rounded(Normals(1, (text_rows + image_rows) * width));
    k = Rounded(Normals(2, (text_rows + image_rows) * width));
    v = Rounded(Normals(3, (text_rows + image_rows) * width));
    dout_text = Rounded(Normals(4, text_rows * width));
    dout_image = Rounded(Normals(5, image_rows * width));
    for (std::int64_t i = 0; masked && i < text_rows; ++i) {
      mask.push_back(UniformInt(6, static_cast<std::uint64_t>(i), 3) != 0);
    }
    MakeResults();
  }
  // Of the inputs' sizes.
  void MakeResults() {
    out_text.assign(dout_text.size(), ToBfloat16(-9.0f)), out_image.assign(dout_image.size(), ToBfloat16(-9.0f));
    dq.assign(q.size(), ToBfloat16(-9.0f)), dk = dq, dv = dq;
    lse.assign(q.size() / static_cast<std::size_t>(head_size), -9.0f);
  }
  AttentionShape shape() const {
    return {.text = text.view(), .image = image.view(), .heads = heads, .head_size = head_size};
  }
  // Also of a masked problem without text: whether there is a mask decides who computes it on a device.
  const std::uint8_t* text_mask() const { return !masked ? nullptr : mask.empty() ? &kNoText : mask.data(); }
  static constexpr std::uint8_t kNoText = 0;

  void Forward(bool with_text = true) {
    AttentionForward(shape(), q.data(), k.data(), v.data(), text_mask(), with_text ? out_text.data() : nullptr,
                     out_image.data(), lse.data());
  }
  void Backward(bool with_text = true) {
    AttentionBackward(shape(), q.data(), k.data(), v.data(), text_mask(), out_text.data(), out_image.data(), lse.data(),
                      with_text ? dout_text.data() : nullptr, dout_image.data(), dq.data(), dk.data(), dv.data());
  }
};

struct Results {
  Doubles out_text, out_image, lse, dq, dk, dv;
};

// By the definition, with whole rows of probabilities.
Results Reference(const Problem& x) {
  const AttentionShape shape = x.shape();
  const std::int64_t size = x.head_size;
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));
  const auto dot = [&](const Bfloat16* a, const Bfloat16* b) {
    double sum = 0;
    for (std::int64_t d = 0; d < size; ++d) sum += static_cast<double>(ToFloat(a[d])) * ToFloat(b[d]);
    return sum;
  };
  const auto add = [&](double factor, const Bfloat16* row, double* to) {
    for (std::int64_t d = 0; d < size; ++d) to[d] += factor * ToFloat(row[d]);
  };
  Results y{Doubles(x.out_text.size()), Doubles(x.out_image.size()), Doubles(x.lse.size()),
            Doubles(x.q.size()),        Doubles(x.q.size()),         Doubles(x.q.size())};
  std::int64_t first = 0;  // row of the head's first token in attention layout
  for (std::int64_t item = 0; item < shape.text.batch * shape.heads; ++item) {
    const std::int64_t b = item / shape.heads, h = item % shape.heads;
    const std::int64_t text = shape.text.tokens(b), tokens = text + shape.image.tokens(b);
    for (std::int64_t i = 0; i < tokens; ++i) {
      const bool is_text = i < text;
      const std::int64_t row = is_text ? shape.text.first[b] + i : shape.image.first[b] + i - text;
      const std::int64_t at = (row * shape.heads + h) * size;
      double* out = (is_text ? y.out_text : y.out_image).data() + at;
      const Bfloat16* dout = (is_text ? x.dout_text : x.dout_image).data() + at;
      const std::int64_t query = (first + i) * size;
      Doubles p(static_cast<std::size_t>(tokens));
      double sum = 0, delta = 0;
      for (std::int64_t j = 0; j < tokens; ++j) {
        const bool seen = j >= text || !x.masked || x.mask[shape.text.first[b] + j] != 0;
        p[j] = seen ? std::exp(scale * dot(x.q.data() + query, x.k.data() + (first + j) * size)) : 0.0;
        sum += p[j];
      }
      y.lse[first + i] = std::log(sum);
      for (std::int64_t j = 0; j < tokens; ++j) add(p[j] /= sum, x.v.data() + (first + j) * size, out);
      for (std::int64_t d = 0; d < size; ++d) delta += out[d] * ToFloat(dout[d]);
      for (std::int64_t j = 0; j < tokens; ++j) {
        const std::int64_t key = (first + j) * size;
        const double ds = scale * p[j] * (dot(dout, x.v.data() + key) - delta);
        add(p[j], dout, y.dv.data() + key);
        add(ds, x.k.data() + key, y.dq.data() + query);
        add(ds, x.q.data() + query, y.dk.data() + key);
      }
    }
    first += tokens;
  }
  return y;
}

Floats Widened(const Halves& halves) {
  Floats values;
  for (const Bfloat16 half : halves) values.push_back(ToFloat(half));
  return values;
}

// A rounding to bf16 is 2^-9 = 0.002 at most; probabilities, results and dS are rounded, and delta is of rounded
// outputs.
constexpr double kForwardTolerance = 0.004, kBackwardTolerance = 0.02, kLseTolerance = 2e-6;

void ExpectForward(const Problem& problem, const Results& expected) {
  ExpectClose(Widened(problem.out_text), expected.out_text, kForwardTolerance);
  ExpectClose(Widened(problem.out_image), expected.out_image, kForwardTolerance);
  ExpectClose(problem.lse, expected.lse, kLseTolerance);
}

void ExpectBackward(const Problem& problem, const Results& expected) {
  ExpectClose(Widened(problem.dq), expected.dq, kBackwardTolerance);
  ExpectClose(Widened(problem.dk), expected.dk, kBackwardTolerance);
  ExpectClose(Widened(problem.dv), expected.dv, kBackwardTolerance);
}

TEST_F(Flash, AgreesWithDouble) {
  // D, T, S: head sizes that fill a tile, that do not, and whose rows are not aligned to 16 bytes; one tile and
  // several.
  const std::int64_t sizes[][3] = {{128, 5, 60}, {128, 70, 131}, {64, 0, 150}, {80, 3, 20},
                                   {24, 7, 16},  {6, 40, 90},    {2, 0, 1}};
  for (const auto& [head_size, text, image] : sizes) {
    for (const bool masked : {false, true}) {
      SCOPED_TRACE("D " + std::to_string(head_size) + " T " + std::to_string(text) + (masked ? " masked" : ""));
      if (masked && text == 0) continue;
      Problem problem(2, head_size, {text}, {image}, masked);
      problem.Forward();
      problem.Backward();
      const Results expected = Reference(problem);
      ExpectForward(problem, expected);
      ExpectBackward(problem, expected);
    }
  }
}

TEST_F(Flash, OfTheAutoencodersHeadAgreesWithDouble) {
  for (const std::int64_t head_size : {384, 130}) {
    Problem problem(1, head_size, {0}, {100}, false);
    problem.Forward();
    ExpectForward(problem, Reference(problem));
  }
}

TEST_F(Flash, OfFp32RowsOfTheAutoencodersHeadAgreesWithDouble) {
  const Problem halves(1, 384, {0}, {100}, false);
  const Floats q = Widened(halves.q), k = Widened(halves.k), v = Widened(halves.v);
  Floats out(q.size()), lse(100);
  AttentionForward(halves.shape(), q.data(), k.data(), v.data(), nullptr, nullptr, out.data(), lse.data());
  const Results expected = Reference(halves);
  ExpectClose(out, expected.out_image, 2e-6);
  ExpectClose(lse, expected.lse, kLseTolerance);
}

// Samples whose lengths differ in text, in image and in both.
const Lengths kText = {7, 0, 150, 1}, kImage = {16, 90, 5, 140};

void ExpectSamplesAreThoseAlone(bool masked) {
  constexpr std::int64_t kHeads = 2, kSize = 16, kRow = kHeads * kSize;
  for (const bool with_text_gradient : {false, true}) {
    SCOPED_TRACE(with_text_gradient);
    Problem all(kHeads, kSize, kText, kImage, masked);
    all.Forward();
    all.Backward(with_text_gradient);
    if (with_text_gradient) ExpectBackward(all, Reference(all));
    const AttentionShape shape = all.shape();
    for (std::int64_t b = 0; b < shape.text.batch; ++b) {
      Problem one(kHeads, kSize, {kText[b]}, {kImage[b]}, masked);
      const auto part = [](const auto& whole, std::int64_t begin, std::int64_t size) {
        return std::vector(whole.begin() + begin, whole.begin() + begin + size);
      };
      const std::int64_t text = shape.text.first[b] * kRow, image = shape.image.first[b] * kRow;
      const std::int64_t size = (kText[b] + kImage[b]) * kRow;
      if (masked) one.mask = part(all.mask, text / kRow, kText[b]);
      one.q = part(all.q, text + image, size), one.k = part(all.k, text + image, size);
      one.v = part(all.v, text + image, size);
      one.dout_text = part(all.dout_text, text, kText[b] * kRow);
      one.dout_image = part(all.dout_image, image, kImage[b] * kRow);
      one.Forward();
      one.Backward(with_text_gradient);
      EXPECT_EQ(one.out_text, part(all.out_text, text, kText[b] * kRow)) << b;
      EXPECT_EQ(one.out_image, part(all.out_image, image, kImage[b] * kRow)) << b;
      EXPECT_EQ(one.lse, part(all.lse, (text + image) / kSize, size / kSize)) << b;
      EXPECT_EQ(one.dq, part(all.dq, text + image, size)) << b;
      EXPECT_EQ(one.dk, part(all.dk, text + image, size)) << b;
      EXPECT_EQ(one.dv, part(all.dv, text + image, size)) << b;
    }
  }
}

TEST_F(Flash, ASampleDoesNotDependOnItsBatch) { ExpectSamplesAreThoseAlone(true); }
TEST_F(Flash, ASampleWithoutAMaskDoesNotDependOnItsBatch) { ExpectSamplesAreThoseAlone(false); }

// The first `columns` of each row of `whole`.
Halves FirstColumns(const Halves& whole, std::int64_t row_size, std::int64_t columns) {
  Halves part;
  for (auto row = whole.begin(); row != whole.end(); row += row_size) part.insert(part.end(), row, row + columns);
  return part;
}

// On a device at about the tokens that Qwen-Image has at 512 and at 1280 px: cuDNN might take another engine for fewer
// heads, and a group would not have the bits of one rank.
TEST_F(Flash, AHeadDoesNotDependOnTheOthers) {
  const bool on_device = std::string(ActiveOperations().name) == "cuda";
  const std::int64_t heads = on_device ? 24 : 8, size = on_device ? 128 : 16, text = on_device ? 44 : 7;
  for (const std::int64_t tokens : on_device ? Lengths{1024, 6400} : Lengths{70, 131}) {
    Problem all(heads, size, {text}, {tokens - text}, false);
    all.Forward();
    all.Backward();
    for (const std::int64_t own : {heads / 2, heads / 4, heads / 8}) {
      SCOPED_TRACE(std::to_string(tokens) + " tokens, " + std::to_string(own) + " heads");
      const auto columns = [&](const Halves& rows) { return FirstColumns(rows, heads * size, own * size); };
      // In attention layout the heads of the one sample follow each other.
      const auto begins = [](auto& whole, std::int64_t count) {
        return std::vector(whole.begin(), whole.begin() + count);
      };
      Problem some(own, size, {text}, {tokens - text}, false, Problem::kEmpty);
      some.q = begins(all.q, own * tokens * size), some.k = begins(all.k, own * tokens * size);
      some.v = begins(all.v, own * tokens * size);
      some.dout_text = columns(all.dout_text), some.dout_image = columns(all.dout_image);
      some.MakeResults();
      some.Forward();
      some.Backward();
      EXPECT_TRUE(some.out_text == columns(all.out_text));
      EXPECT_TRUE(some.out_image == columns(all.out_image));
      EXPECT_TRUE(some.lse == begins(all.lse, own * tokens));
      EXPECT_TRUE(some.dq == begins(all.dq, own * tokens * size));
      EXPECT_TRUE(some.dk == begins(all.dk, own * tokens * size));
      EXPECT_TRUE(some.dv == begins(all.dv, own * tokens * size));
    }
  }
}

TEST_F(Flash, NoTextGradientIsAZeroTextGradient) {
  Problem problem(2, 16, {70, 30}, {80, 110}, true);
  problem.Forward();
  // The last block's forward leaves the text's lse as it was.
  for (std::int64_t i = 0; i < 70; ++i) problem.lse[i] = std::numeric_limits<float>::quiet_NaN();
  problem.Backward(false);
  problem.dout_text.assign(problem.dout_text.size(), {});
  ExpectBackward(problem, Reference(problem));
  for (std::int64_t i = 0; i < 70 * 16; ++i) EXPECT_EQ(problem.dq[i], Bfloat16{}) << i;
}

TEST_F(Flash, LeavesOutTheTextQueriesWhenTheirOutputIsNotWanted) {
  Problem all(2, 16, {70, 30}, {80, 110}, true), image = all;
  all.Forward();
  image.Forward(false);
  EXPECT_EQ(image.out_image, all.out_image);
  EXPECT_EQ(image.lse[69], -9.0f);
  EXPECT_EQ(image.lse[70], all.lse[70]);
}

TEST_F(Flash, MaskedKeysHaveNoInfluenceAndNoGradient) {
  // The first tile of keys shows nothing, and what it hides is not a number.
  Problem problem(1, 64, {70}, {16}, true);
  problem.mask.assign(70, 0);
  problem.mask[66] = 1;
  Problem changed = problem;
  for (std::int64_t token = 0; token < 70; ++token) {
    for (std::int64_t d = 0; d < 64 && token != 66; ++d) {
      changed.k[token * 64 + d] = changed.v[token * 64 + d] = ToBfloat16(std::numeric_limits<float>::quiet_NaN());
    }
  }
  for (Problem* each : {&problem, &changed}) {
    each->Forward();
    each->Backward();
    ExpectBackward(*each, Reference(problem));
  }
  EXPECT_EQ(changed.out_text, problem.out_text);
  EXPECT_EQ(changed.out_image, problem.out_image);
  EXPECT_EQ(changed.dq, problem.dq);
  EXPECT_EQ(changed.dk, problem.dk);
  EXPECT_EQ(changed.dk[65 * 64], Bfloat16{});
}

TEST_F(Flash, TakesMoreSamplesThanALaunch) {
  Problem problem(1, 2, Lengths(130, 0), Lengths(130, 1), false);
  problem.Forward();
  EXPECT_EQ(problem.out_image, problem.v);  // one key each
}

void ExpectError(const std::string& message, std::int64_t head_size, bool backward, const Problem& problem) {
  AttentionShape shape = problem.shape();
  shape.head_size = head_size;
  try {
    if (backward) {
      AttentionBackward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                        nullptr, nullptr);
    } else {
      AttentionForward(shape, problem.q.data(), problem.lse.data(), nullptr, nullptr, nullptr, nullptr, nullptr);
    }
    FAIL() << "no error: " << message;
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

TEST_F(Flash, SaysWhatItDoesNotTake) {
  const Problem problem(1, 2, {1}, {1}, false);
  ExpectError("even head sizes up to 384, not 3", 3, false, problem);
  ExpectError("even head sizes up to 384, not 386", 386, false, problem);
  ExpectError("even head sizes up to 128, not 130", 130, true, problem);
  ExpectError("differ in element type", 2, false, problem);
}

// A [16 x 16] and B [16 x 8] by columns or by rows, both in shared memory; C [16 x 8].
__global__ void MultiplyTiles(const Bfloat16* a, const Bfloat16* b, bool b_by_rows, float* c) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  // Rows of 16 bytes, one after the other: eight of them fill all banks.
  auto* memory = cuda::SharedMemory<Bfloat16>();
  Bfloat16* shared_b = memory + 256;
  for (int i = lane; i < 256; i += 32) memory[(i / 8 % 2 * 16 + i / 16) * 8 + i % 8] = a[i];
  for (int i = lane; i < 128; i += 32) {
    if (b_by_rows) {
      shared_b[i] = b[i];
    } else {
      shared_b[(i / 8 % 2 * 8 + i / 16) * 8 + i % 8] = b[i];
    }
  }
  __syncwarp();
  std::uint32_t left[4], right[4];
  cuda::LoadMatrices(cuda::ToShared(memory + lane * 8), left);
  if (b_by_rows) {
    cuda::LoadMatricesTransposed(cuda::ToShared(shared_b + lane % 16 * 8), right);
  } else {
    cuda::LoadMatrices(cuda::ToShared(shared_b + lane % 16 * 8), right);
  }
  float sums[4] = {1, 1, 1, 1};
  cuda::MultiplyAdd(left, right[0], right[1], sums);
  for (int r = 0; r < 4; ++r) c[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = sums[r];
}

TEST(Mma, MultipliesTiles) {
  for (const bool b_by_rows : {false, true}) {
    const Halves a = Rounded(Normals(1, 256)), b = Rounded(Normals(2, 128));
    Floats c(128);
    Doubles expected(128, 1.0);
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        for (int k = 0; k < 16; ++k) {
          expected[i * 8 + j] +=
              static_cast<double>(ToFloat(a[i * 16 + k])) * ToFloat(b[b_by_rows ? k * 8 + j : j * 16 + k]);
        }
      }
    }
    cuda::Launch(MultiplyTiles, 1, 32, 768, a.data(), b.data(), b_by_rows, c.data());
    ExpectClose(c, expected, 1e-6);
  }
}

__global__ void LoadFromTheSameBanks() {
  std::uint32_t matrices[4];
  cuda::LoadMatrices(cuda::ToShared(cuda::SharedMemory<Bfloat16>() + threadIdx.x % 8 * 64), matrices);
}

TEST(MmaDeathTest, RowsInTheSameBanksAreABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(cuda::Launch(LoadFromTheSameBanks, 1, 32, 1024), "must lie in different banks");
}

}  // namespace
}  // namespace spotlight
