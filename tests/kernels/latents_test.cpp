#include "kernels/latents.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

TEST(NormalNoise, RowsAreTheStreams) {
  const std::uint64_t keys[] = {11, 12, 13};
  const std::int64_t size = 20001;
  Floats noise(static_cast<std::size_t>(3 * size));
  NormalNoise(3, size, keys, noise.data());
  for (std::int64_t b = 0; b < 3; ++b) {
    Floats row(static_cast<std::size_t>(size));
    FillNormal(keys[b], 0, row);
    EXPECT_EQ(Slice(noise, b * size, size), row);
  }
}

TEST(PackLatents, PutsFeaturesWhereQwenImageDoes) {
  const std::int64_t batch = 2, channels = 3, h = 2, w = 5;
  const Floats latents = Normals(1, batch * channels * 2 * h * 2 * w);
  Floats packed(latents.size()), back(latents.size());
  PackLatents(batch, channels, h, w, latents.data(), packed.data());
  // Sample 1, channel 2, pixel row 3, pixel column 7: token (1, 3), feature 2*4 + 1*2 + 1.
  EXPECT_EQ(packed[static_cast<std::size_t>((h * w + 1 * w + 3) * 4 * channels + 11)],
            latents[static_cast<std::size_t>(((channels + 2) * 2 * h + 3) * 2 * w + 7)]);
  // Sample 0, channel 1, pixel row 2, pixel column 1: token (1, 0), feature 1*4 + 0*2 + 1.
  EXPECT_EQ(packed[static_cast<std::size_t>(w * 4 * channels + 5)],
            latents[static_cast<std::size_t>((2 * h + 2) * 2 * w + 1)]);
  UnpackLatents(batch, channels, h, w, packed.data(), back.data());
  EXPECT_EQ(back, latents);
}

}  // namespace
}  // namespace spotlight
