#include "kernels/fingerprint.hpp"

#include <gtest/gtest.h>

namespace spotlight {
namespace {

TEST(Fingerprint, IsTheSameEveryTime) {
  const std::uint64_t first = ArithmeticFingerprint();
  EXPECT_NE(first, 0U);
  EXPECT_EQ(ArithmeticFingerprint(), first);
}

}  // namespace
}  // namespace spotlight
