#include "plan/window.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/error.hpp"

namespace spotlight {
namespace {

TEST(Window, UniformOverTheRangeAndRepeatable) {
  std::map<int, int> counts;
  for (std::uint32_t iteration = 0; iteration < 3000; ++iteration) {
    const int start = DrawWindowStart(42, iteration, 2, 4);
    EXPECT_EQ(DrawWindowStart(42, iteration, 2, 4), start);
    ++counts[start];
  }
  ASSERT_EQ(counts.size(), 3U);
  EXPECT_EQ(counts.begin()->first, 2);
  EXPECT_EQ(counts.rbegin()->first, 4);
  for (const auto& [start, count] : counts) EXPECT_NEAR(count, 1000, 130) << start;  // 5 standard errors
}

TEST(Window, OneChoice) { EXPECT_EQ(DrawWindowStart(1, 9, 3, 3), 3); }

TEST(Window, EmptyRangeIsABug) { EXPECT_THROW(DrawWindowStart(1, 0, 3, 2), InternalError); }

}  // namespace
}  // namespace spotlight
