#include "base/random.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;

// The known-answer vectors that the Random123 distribution publishes for philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(Philox(0, 0, 0), ElementsAre(0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_THAT(Philox(ones, ones, ones), ElementsAre(0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu));
  EXPECT_THAT(Philox(0x299f31d0a4093822u, 0x85a308d3243f6a88u, 0x0370734413198a2eu),
              ElementsAre(0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u));
}

TEST(StreamKey, DependsOnEveryPartAndTheOrder) {
  const std::set<std::uint64_t> keys = {StreamKey({}),     StreamKey({0}),    StreamKey({0, 0}),   StreamKey({1}),
                                        StreamKey({1, 2}), StreamKey({2, 1}), StreamKey({1, 2, 0})};
  EXPECT_EQ(keys.size(), 7u);
  EXPECT_EQ(StreamKey({1, 2}), StreamKey({1, 2}));
  EXPECT_NE(NoiseKey(1, 2, 3, -1), NoiseKey(1, 2, 3, 0));
}

// Box-Muller in double, from the same Philox words.
TEST(FillNormal, IsBoxMullerOfTheBlocks) {
  const std::uint64_t key = StreamKey({42});
  std::vector<float> normals(40000);
  FillNormal(key, 0, normals);
  for (std::size_t i = 0; i < normals.size(); i += 2) {
    const auto words = Philox(key, i / 4, 0);
    const std::size_t pair = i % 4;
    const double u = std::fma(static_cast<double>(static_cast<float>(words[pair])), 0x1p-32, 0x1p-33);
    const double angle = 2 * std::numbers::pi * 0x1p-32 * words[pair + 1];
    const double radius = std::sqrt(-2 * std::log(static_cast<double>(static_cast<float>(u))));
    ASSERT_NEAR(normals[i], radius * std::cos(angle), 5e-7 * radius) << i;
    ASSERT_NEAR(normals[i + 1], radius * std::sin(angle), 5e-7 * radius) << i;
  }
}

TEST(FillNormal, HasTheMomentsOfTheNormalDistribution) {
  std::vector<float> normals(1 << 21);
  FillNormal(7, 0, normals);
  double sums[5] = {};
  double neighbours = 0;
  int beyond_three = 0;
  for (std::size_t i = 0; i < normals.size(); ++i) {
    const double z = normals[i];
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(z, power);
    beyond_three += std::fabs(z) > 3 ? 1 : 0;
    if (i > 0) neighbours += z * normals[i - 1];
  }
  const auto count = static_cast<double>(normals.size());  // bounds: 5 standard errors
  EXPECT_NEAR(sums[1] / count, 0, 5 * std::sqrt(1 / count));
  EXPECT_NEAR(sums[2] / count, 1, 5 * std::sqrt(2 / count));
  EXPECT_NEAR(sums[3] / count, 0, 5 * std::sqrt(15 / count));
  EXPECT_NEAR(sums[4] / count, 3, 5 * std::sqrt(96 / count));
  EXPECT_NEAR(neighbours / count, 0, 5 * std::sqrt(1 / count));
  EXPECT_NEAR(beyond_three / count, 0.0026998, 5 * std::sqrt(0.0027 / count));
}

TEST(FillNormal, AnyPieceOfAStreamIsTheSame) {
  std::vector<float> whole(1000);
  FillNormal(3, 0, whole);
  for (const std::size_t first : {4, 60, 64, 500}) {
    for (const std::size_t count : {1, 3, 17, 64, 131}) {
      std::vector<float> piece(count);
      FillNormal(3, first, piece);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(piece[i], whole[first + i]) << first << " + " << i;
    }
  }
  std::vector<float> other(1000);
  FillNormal(4, 0, other);
  EXPECT_NE(other, whole);
}

// Frozen: a change of any bit changes every run that was ever made.
TEST(FillNormal, BitsAreFrozen) {
  std::vector<float> normals(5);
  FillNormal(StreamKey({1, 2, 3}), 1ull << 40, normals);
  EXPECT_THAT(normals, ElementsAre(0x1.488beep-2f, -0x1.23415p+1f, 0x1.3cdac6p-2f, -0x1.19e5p-1f, -0x1.a87122p+0f));
}

TEST(FillNormal, RejectsAMisalignedStart) {
  std::vector<float> normals(4);
  EXPECT_THROW(FillNormal(0, 2, normals), InternalError);
}

TEST(Uniform, IntegersCoverTheirRangeEvenly) {
  std::vector<int> counts(10);
  for (std::uint64_t i = 0; i < 100000; ++i) ++counts.at(UniformInt(5, i, 10));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(UniformInt(5, 3, 1), 0u);
  EXPECT_THROW(UniformInt(5, 3, 0), InternalError);
}

TEST(Uniform, DoublesAreEvenInTheUnitInterval) {
  double sum = 0, squares = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = UniformDouble(5, i);
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
  EXPECT_NEAR(squares / 100000, 1.0 / 3, 0.005);
}

}  // namespace
}  // namespace spotlight
