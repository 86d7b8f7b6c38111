#include "kernels/buffer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "kernels/block_copy.hpp"
#include "kernels/memory.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

Floats Contents(const Buffer& buffer, std::int64_t size) {
  Floats values(static_cast<std::size_t>(size));
  buffer.CopyToHost(values);
  return values;
}

TEST(Buffer, FillsARangeAndNoMore) {
  Buffer buffer(6);
  buffer.CopyFromHost(Floats{1, 2, 3, 4, 5, 6});
  buffer.Fill(2, 3, [](std::span<float> values) {
    ASSERT_EQ(values.size(), 3u);
    std::fill(values.begin(), values.end(), 9.0f);
  });
  EXPECT_EQ(Contents(buffer, 6), (Floats{1, 2, 9, 9, 9, 6}));
  try {
    buffer.Fill(4, 3, [](std::span<float>) { FAIL() << "called beyond the end"; });
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("a range of another buffer"), std::string::npos) << error.what();
  }
}

TEST(Buffer, HoldsBfloat16) {
  Bfloat16Buffer buffer(3);
  buffer.Zero();
  buffer.Fill(1, 1, [](std::span<Bfloat16> values) { values[0] = ToBfloat16(1.5f); });
  std::vector<Bfloat16> values(3);
  buffer.CopyToHost(values);
  EXPECT_EQ(values, (std::vector<Bfloat16>{{0}, {0x3fc0}, {0}}));
}

TEST(Buffer, ActivationsTakeTheTypeThatTheyAreResizedTo) {
  ActivationBuffer buffer;
  EXPECT_FALSE(buffer.data());
  buffer.Resize(ElementType::kFp32, 3);
  EXPECT_EQ(buffer.data().type, ElementType::kFp32);
  void* const memory = buffer.data().data;
  buffer.Resize(ElementType::kBf16, 5);
  EXPECT_EQ(buffer.size(), 5);
  EXPECT_EQ(buffer.data().type, ElementType::kBf16);
  EXPECT_EQ(std::as_const(buffer).data().type, ElementType::kBf16);
  EXPECT_EQ(buffer.data().data, memory) << "it is large enough";
  const std::vector<Bfloat16> host{{1}, {2}, {3}, {4}, {5}};
  CopyIn(buffer.data().data, host.data(), 10);
  std::vector<Bfloat16> end(2);
  CopyOut(end.data(), (buffer.data() + 3).data, 4);
  EXPECT_EQ(end, (std::vector<Bfloat16>{{4}, {5}}));
}

TEST(Buffer, ViewsMemoryThatOthersOwn) {
  alignas(64) float memory[4] = {1, 2, 3, 4};
  {
    Buffer view = Buffer::ViewOf(memory);
    EXPECT_EQ(view.data(), memory);
    EXPECT_EQ(Contents(view, 4), (Floats{1, 2, 3, 4}));
    view.Resize(2);
    view.CopyFromHost(Floats{5, 6});
    EXPECT_EQ(view.data(), memory) << "it is large enough";
    view.Resize(8);  // memory of its own, which is freed; the other is left alone
    view.Zero();
    EXPECT_NE(view.data(), memory);
  }
  EXPECT_EQ(Floats(memory, memory + 4), (Floats{5, 6, 3, 4}));
  EXPECT_THROW(Buffer::ViewOf(std::span(memory).subspan(1)), InternalError);
}

TEST(KeepRows, MovesTheKeptSamplesToTheFront) {
  const std::int64_t width = 3;
  const TokenRowTable samples({2, 0, 5, 1, 4});
  const TokenRows rows = samples.view();
  const Floats before = Normals(1, rows.rows() * width);
  for (const std::vector<std::int64_t>& kept :
       {std::vector<std::int64_t>{}, {0, 1}, {2}, {1, 4}, {0, 2, 4}, {2, 3, 4}, {0, 1, 2, 3, 4}}) {
    Buffer buffer(rows.rows() * width);
    buffer.CopyFromHost(before);
    KeepRows(buffer.data(), rows, width, kept);
    Floats expected;
    for (const std::int64_t b : kept) {
      const Floats sample = SampleOf(before, rows, b, width);
      expected.insert(expected.end(), sample.begin(), sample.end());
    }
    EXPECT_EQ(Contents(buffer, static_cast<std::int64_t>(expected.size())), expected);
  }
}

TEST(TokenRows, CountsRowsOfEachSample) {
  TokenRowTable table({3, 0, 2});
  const TokenRows rows = table.view();
  EXPECT_EQ(rows.batch, 3);
  EXPECT_EQ(rows.rows(), 5);
  EXPECT_EQ(rows.tokens(1), 0);
  EXPECT_EQ(rows.most_tokens(), 3);
  EXPECT_EQ(std::vector<std::int64_t>(rows.sample, rows.sample + 5), (std::vector<std::int64_t>{0, 0, 0, 2, 2}));
  table.Assign({});
  EXPECT_EQ(table.view().rows(), 0);
  EXPECT_EQ(TokenRows{}.rows(), 0);
}

TEST(RoundToBfloat16, RoundsEveryElement) {
  Floats from = Normals(1, 20003);  // several blocks and a tail
  from[0] = std::numeric_limits<float>::infinity();
  from[20002] = std::numeric_limits<float>::quiet_NaN();
  std::vector<Bfloat16> to(from.size());
  RoundToBfloat16(20003, from.data(), to.data());
  for (std::size_t i = 0; i < from.size(); ++i) ASSERT_EQ(to[i], ToBfloat16(from[i])) << i;
}

TEST(CopyBlocks, MovesEveryRowOfEveryBlockAndNothingElse) {
  Floats from(30);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i);
  const BlockCopy blocks[] = {
      {.from_offset = 1, .to_offset = 10, .rows = 2, .size = 3, .from_stride = 10, .to_stride = 4},
      {.from_offset = 25, .to_offset = 0, .rows = 1, .size = 2},
      {.from_offset = 0, .to_offset = 4, .rows = 0, .size = 2}};
  Floats to(20, -1.0f);
  CopyBlocks(blocks, from.data(), to.data());
  Floats expected(20, -1.0f);
  for (std::size_t i = 0; i < 3; ++i) {
    expected[10 + i] = static_cast<float>(1 + i);
    expected[14 + i] = static_cast<float>(11 + i);
  }
  expected[0] = 25, expected[1] = 26;
  EXPECT_EQ(to, expected);
}

TEST(CopyBlocks, ReversedBlocksPutEverythingBack) {
  const Floats from = Normals(1, 60);
  const BlockCopy there[] = {
      {.from_offset = 0, .to_offset = 20, .rows = 4, .size = 5, .from_stride = 15, .to_stride = 5},
      {.from_offset = 5, .to_offset = 40, .rows = 4, .size = 4, .from_stride = 15, .to_stride = 7}};
  const BlockCopy back[] = {there[0].Reversed(), there[1].Reversed()};
  Floats middle(80), returned(60);
  CopyBlocks(there, from.data(), middle.data());
  CopyBlocks(back, middle.data(), returned.data());
  for (std::size_t i = 0; i < 60; ++i) ASSERT_EQ(returned[i], i % 15 < 9 ? from[i] : 0.0f) << i;
}

}  // namespace
}  // namespace spotlight
