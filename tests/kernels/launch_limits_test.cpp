// What one launch of a GPU does not take at once: batches larger than the table that travels with it, long lists,
// arrays off the 16-byte borders, moves longer than the memory that they go through. The CPU has no such limits; the
// results are the same.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/block_copy.hpp"
#include "kernels/buffer.hpp"
#include "kernels/latents.hpp"
#include "kernels/operations.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/sde_step.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

TEST(LargeBatch, StepsOfEverySampleAreThoseOfTheSampleAlone) {
  const std::int64_t batch = 131;
  for (const std::int64_t size : {1, 4, 97}) {
    const Floats x = Normals(1, batch * size), v = Normals(2, batch * size), z = Normals(3, batch * size);
    const Floats reference = Normals(4, batch * size), dlog_prob = Normals(5, batch), dkl = Normals(6, batch);
    std::vector<StepCoefficients> coefficients;
    for (int b = 0; b < batch; ++b) {
      const float part = static_cast<float>(b) / 131;
      coefficients.push_back({.c_x = 1 - part / 4,
                              .c_v = -0.1f - part,
                              .tau = b % 3 == 0 ? 0.0f : 0.1f + part,
                              .log_prob_scale = 1 + part,
                              .log_prob_constant = part});
    }
    Floats next(x.size()), log_prob(batch), kl(batch), dv(x.size());
    SdeStep(batch, size, coefficients.data(), x.data(), v.data(), z.data(), next.data());
    LogProb(batch, size, coefficients.data(), x.data(), v.data(), next.data(), log_prob.data());
    StepKl(batch, size, coefficients.data(), v.data(), reference.data(), kl.data());
    LogProbBackward(batch, size, coefficients.data(), x.data(), v.data(), next.data(), reference.data(),
                    dlog_prob.data(), dkl.data(), dv.data());
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t at = b * size;
      const StepCoefficients* own = &coefficients[static_cast<std::size_t>(b)];
      Floats own_next(static_cast<std::size_t>(size)), own_log_prob(1), own_kl(1), own_dv(own_next.size());
      SdeStep(1, size, own, x.data() + at, v.data() + at, z.data() + at, own_next.data());
      LogProb(1, size, own, x.data() + at, v.data() + at, own_next.data(), own_log_prob.data());
      StepKl(1, size, own, v.data() + at, reference.data() + at, own_kl.data());
      LogProbBackward(1, size, own, x.data() + at, v.data() + at, own_next.data(), reference.data() + at,
                      dlog_prob.data() + b, dkl.data() + b, own_dv.data());
      ASSERT_EQ(own_next, Slice(next, at, size)) << "sample " << b << " of size " << size;
      ASSERT_EQ(own_log_prob, Slice(log_prob, b, 1)) << "sample " << b << " of size " << size;
      ASSERT_EQ(own_kl, Slice(kl, b, 1)) << "sample " << b << " of size " << size;
      ASSERT_EQ(own_dv, Slice(dv, at, size)) << "sample " << b << " of size " << size;
    }
  }
}

TEST(LargeBatch, NoiseIsThatOfTheStreams) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 37, 1028}) {
    std::vector<std::uint64_t> keys;
    for (std::uint64_t b = 0; b < 131; ++b) keys.push_back(StreamKey({b}));
    Floats noise(keys.size() * static_cast<std::size_t>(size));
    NormalNoise(static_cast<std::int64_t>(keys.size()), size, keys.data(), noise.data());
    Floats row(static_cast<std::size_t>(size));
    for (std::size_t b = 0; b < keys.size(); ++b) {
      FillNormal(keys[b], 0, row);
      ASSERT_EQ(Slice(noise, static_cast<std::int64_t>(b) * size, size), row) << "stream " << b << ", " << size;
    }
  }
}

TEST(LogProb, OfALongRowMatchesDoubleWhereverItLies) {
  const std::int64_t size = 70001;  // several chunks and a tail
  const Floats x = Normals(1, size + 1), v = Normals(2, size + 1), next = Normals(3, size + 1);
  const StepCoefficients c{.c_x = 0.9f, .c_v = -0.3f, .tau = 0.5f, .log_prob_scale = 2, .log_prob_constant = -1};
  Floats log_prob(1), moved(1);
  LogProb(1, size, &c, x.data() + 1, v.data() + 1, next.data() + 1, log_prob.data());
  double sum = 0;
  for (std::size_t i = 1; i < x.size(); ++i) {
    const double rest = next[i] - (static_cast<double>(c.c_x) * x[i] + static_cast<double>(c.c_v) * v[i]);
    sum += rest * rest;
  }
  ExpectClose(log_prob, {c.log_prob_constant - c.log_prob_scale * sum / static_cast<double>(size)}, 1e-6);
  const Floats moved_x = Slice(x, 1, size), moved_v = Slice(v, 1, size), moved_next = Slice(next, 1, size);
  LogProb(1, size, &c, moved_x.data(), moved_v.data(), moved_next.data(), moved.data());
  EXPECT_EQ(moved, log_prob);
}

TEST(SquaredNorm, HasTheSameBitsWhereverTheArrayLies) {
  const Floats x = Normals(1, 20004), moved = Slice(x, 3, 20001);
  EXPECT_EQ(SquaredNorm(20001, x.data() + 3), SquaredNorm(20001, moved.data()));
}

// Block i: 1 to 7 rows of 1 to 40 elements, with gaps on both sides; every fourth lies on 16-byte borders.
template <typename T>
void ExpectManyBlocksAreCopied(const std::vector<T>& values) {
  std::vector<BlockCopy> blocks;
  std::int64_t from = 0, to = 0;
  for (std::int64_t i = 0; i < 200; ++i) {
    const std::int64_t rows = i % 7 + 1, size = i % 4 == 0 ? 8 * (i % 5 + 1) : i % 37 + 1;
    const std::int64_t gap = i % 4 == 0 ? 8 : i % 3;
    if (i % 4 == 0) from = (from + 7) / 8 * 8, to = (to + 7) / 8 * 8;
    blocks.push_back({from, to, rows, size, size + gap, size + 2 * gap});
    from += rows * (size + gap);
    to += rows * (size + 2 * gap);
  }
  ASSERT_LE(from, static_cast<std::int64_t>(values.size()));
  std::vector<T> copied(static_cast<std::size_t>(to)), expected(copied.size());
  CopyBlocks(blocks, values.data(), copied.data());
  for (const BlockCopy& block : blocks) {
    for (std::int64_t row = 0; row < block.rows; ++row) {
      std::copy_n(values.begin() + block.from_offset + row * block.from_stride, block.size,
                  expected.begin() + block.to_offset + row * block.to_stride);
    }
  }
  EXPECT_EQ(copied, expected);
}

std::vector<Bfloat16> Bfloats(std::int64_t size) {
  std::vector<Bfloat16> values;
  for (const float value : Normals(1, size)) values.push_back(ToBfloat16(value));
  return values;
}

bool TakesBfloat16() { return std::string_view(ActiveOperations().name) != "kokkos"; }

TEST(CopyBlocks, TakesLongLists) {
  ExpectManyBlocksAreCopied(Normals(1, 40000));
  if (TakesBfloat16()) ExpectManyBlocksAreCopied(Bfloats(40000));
}

// Samples of `tokens` rows each, of which `kept` stay.
template <typename T>
void ExpectRowsAreKept(const std::vector<T>& values, const std::vector<std::int64_t>& tokens, std::int64_t width,
                       const std::vector<std::int64_t>& kept) {
  const TokenRowTable table(tokens);
  const TokenRows rows = table.view();
  std::vector<T> moved = values, expected;
  for (const std::int64_t b : kept) {
    expected.insert(expected.end(), values.begin() + rows.first[b] * width, values.begin() + rows.first[b + 1] * width);
  }
  KeepRows(moved.data(), rows, width, kept);
  moved.resize(expected.size());
  EXPECT_TRUE(moved == expected);
}

TEST(KeepRows, MovesFurtherThanTheMemoryItGoesThrough) {
  const std::int64_t million = 1 << 20;
  Floats values(static_cast<std::size_t>(11 * million));
  std::iota(values.begin(), values.end(), 0.0f);                  // exact up to 2^24
  ExpectRowsAreKept(values, {1, 10 * million}, 1, {1});           // by one element
  ExpectRowsAreKept(values, {5 * million, 6 * million}, 1, {1});  // in two pieces
  ExpectRowsAreKept(values, {5 * million, 2 * million}, 1, {1});  // at once
}

TEST(KeepRows, MovesBfloat16) {
  if (!TakesBfloat16()) GTEST_SKIP() << "the CPU computes in fp32";
  ExpectRowsAreKept(Bfloats(36), {2, 0, 5, 1, 4}, 3, {0, 2, 4});
}

}  // namespace
}  // namespace spotlight
