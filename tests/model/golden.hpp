// Access to the golden vectors (tests/data/golden/README.md) and their distance measures.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace spotlight {

// SPOTLIGHT_GOLDEN_DIR, or the project's own set.
inline std::string GoldenDir() {
  const char* dir = std::getenv("SPOTLIGHT_GOLDEN_DIR");
  return dir != nullptr ? dir : SPOTLIGHT_TEST_DATA_DIR "/golden";
}

struct Distance {
  double rel_l2 = 0, rel_max = 0;
};

template <typename X, typename G>
Distance Compare(const X& x, const G& golden) {
  EXPECT_EQ(x.size(), golden.size());
  double square = 0, golden_square = 0, largest = 0, golden_largest = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(x.size(), golden.size()); ++i) {
    const double difference = static_cast<double>(x[i]) - static_cast<double>(golden[i]);
    square += difference * difference;
    golden_square += static_cast<double>(golden[i]) * static_cast<double>(golden[i]);
    largest = std::max(largest, std::abs(difference));
    golden_largest = std::max(golden_largest, std::abs(static_cast<double>(golden[i])));
    if (std::isnan(difference)) return {NAN, NAN};
  }
  return {std::sqrt(square / std::max(golden_square, 1e-300)), largest / std::max(golden_largest, 1e-300)};
}

#define EXPECT_CLOSE(x, golden, l2, max, what)                                  \
  do {                                                                          \
    const ::spotlight::Distance distance = ::spotlight::Compare((x), (golden)); \
    EXPECT_LE(distance.rel_l2, (l2)) << (what);                                 \
    EXPECT_LE(distance.rel_max, (max)) << (what);                               \
  } while (false)

}  // namespace spotlight
