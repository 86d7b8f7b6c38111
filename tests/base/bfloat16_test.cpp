#include "base/bfloat16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace spotlight {
namespace {

float FromBits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Bfloat16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const Bfloat16 value{static_cast<std::uint16_t>(bits)};
    const float wide = ToFloat(value);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(ToFloat(ToBfloat16(wide)))) << bits;
    } else {
      ASSERT_EQ(ToBfloat16(wide), value) << bits;
    }
  }
}

TEST(Bfloat16, RoundsToNearestAndTiesToEven) {
  const struct {
    std::uint32_t from;
    std::uint16_t to;
  } cases[] = {
      {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80},  // 1, just below a tie, a tie to the even 1
      {0x3f808001, 0x3f81}, {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82},  // just above, ties to the even 1 + 1/64
      {0x3fffffff, 0x4000},                                              // carries into the exponent
      {0x00000001, 0x0000}, {0x80000001, 0x8000}, {0x00008000, 0x0000},  // denormals
      {0x00018000, 0x0002}, {0x00008001, 0x0001}, {0x007fffff, 0x0080},  // the last becomes normal
      {0x00000000, 0x0000}, {0x80000000, 0x8000},
  };
  for (const auto& [from, to] : cases) EXPECT_EQ(ToBfloat16(FromBits(from)).bits, to) << std::hex << from;
}

TEST(Bfloat16, InfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ToBfloat16(infinity).bits, 0x7f80);
  EXPECT_EQ(ToBfloat16(-infinity).bits, 0xff80);
  EXPECT_EQ(ToBfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);  // nearest is beyond the largest
  // Payloads whose upper half is 0 or all ones, of both signs.
  for (const std::uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const Bfloat16 value = ToBfloat16(FromBits(bits));
    EXPECT_TRUE(std::isnan(ToFloat(value))) << std::hex << bits;
    EXPECT_EQ(value.bits >> 15, bits >> 31) << std::hex << bits;
  }
}

}  // namespace
}  // namespace spotlight
