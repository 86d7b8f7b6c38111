#include "base/tensor_source.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

WeightMapSource Source() {
  return {{{"b", {{2, 2}, {1.0f, -2.0f, 1.00390625f, 3.0f}}},  // the third is halfway between two bfloat16 values
           {"a", {{1}, {std::numeric_limits<float>::infinity()}}}},
          "weights.h5"};
}

template <typename Read>
void ExpectUserError(const Read& read, const std::string& message) {
  try {
    read();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()), message);
  }
}

TEST(WeightMapSource, GivesItsTensors) {
  const WeightMapSource source = Source();
  EXPECT_EQ(source.place(), "weights.h5");
  EXPECT_EQ(source.Names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(source.Has("a"));
  EXPECT_FALSE(source.Has("c"));
  EXPECT_EQ(source.ShapeOf("b"), (Shape{2, 2}));
  std::vector<float> values(4);
  source.Read("b", std::span<float>(values));
  EXPECT_EQ(values, (std::vector<float>{1.0f, -2.0f, 1.00390625f, 3.0f}));
  std::vector<Bfloat16> rounded(4);
  source.Read("b", std::span<Bfloat16>(rounded));
  EXPECT_EQ(rounded, (std::vector<Bfloat16>{{0x3f80}, {0xc000}, {0x3f80}, {0x4040}}));
}

TEST(WeightMapSource, NamesWhatIsWrong) {
  const WeightMapSource source = Source();
  std::vector<float> values(1);
  std::vector<Bfloat16> rounded(1);
  const std::string absent = "weights.h5: has no tensor c";
  ExpectUserError([&] { source.Read("c", std::span<float>(values)); }, absent);
  ExpectUserError([&] { source.Read("c", std::span<Bfloat16>(rounded)); }, absent);
  ExpectUserError([&] { source.ShapeOf("c"); }, absent);
  const std::string infinite = "weights.h5: tensor a has values that are not finite";
  ExpectUserError([&] { source.Read("a", std::span<float>(values)); }, infinite);
  ExpectUserError([&] { source.Read("a", std::span<Bfloat16>(rounded)); }, infinite);
}

}  // namespace
}  // namespace spotlight
