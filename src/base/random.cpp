#include "base/random.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/normal_deviates.hpp"

namespace spotlight {
namespace {

// Blocks that FillNormal makes at a time: every line of the loops below is one vector operation.
constexpr int kBlocks = 16;

// The fourth word of the counter keeps the three kinds of numbers of one stream apart.
constexpr std::uint64_t kIntStream = std::uint64_t{1} << 32;
constexpr std::uint64_t kDoubleStream = std::uint64_t{2} << 32;

}  // namespace

std::array<std::uint32_t, 4> Philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  std::uint32_t words[4][1] = {{static_cast<std::uint32_t>(counter_low)},
                               {static_cast<std::uint32_t>(counter_low >> 32)},
                               {static_cast<std::uint32_t>(counter_high)},
                               {static_cast<std::uint32_t>(counter_high >> 32)}};
  PhiloxRounds(key, words);
  return {words[0][0], words[1][0], words[2][0], words[3][0]};
}

std::uint64_t StreamKey(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t key = 0;
  std::uint64_t position = 0;
  for (const std::uint64_t part : parts) {
    const auto words = Philox(key, part, ++position);
    key = words[0] | std::uint64_t{words[1]} << 32;
  }
  return key;
}

void FillNormal(std::uint64_t key, std::uint64_t first, std::span<float> out) {
  SPOTLIGHT_REQUIRE(first % 4 == 0, "first = " + std::to_string(first));
  std::uint64_t block = first / 4;
  for (std::size_t done = 0; done < out.size(); done += 4 * kBlocks, block += kBlocks) {
    std::uint32_t words[4][kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      const std::uint64_t counter = block + static_cast<std::uint64_t>(i);
      words[0][i] = static_cast<std::uint32_t>(counter);
      words[1][i] = static_cast<std::uint32_t>(counter >> 32);
      words[2][i] = 0;
      words[3][i] = 0;
    }
    PhiloxRounds(key, words);
    float normals[4][kBlocks];
    for (int i = 0; i < kBlocks; ++i) BoxMuller(words[0][i], words[1][i], normals[0][i], normals[1][i]);
    for (int i = 0; i < kBlocks; ++i) BoxMuller(words[2][i], words[3][i], normals[2][i], normals[3][i]);
    float ordered[4 * kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      for (int j = 0; j < 4; ++j) ordered[4 * i + j] = normals[j][i];
    }
    std::copy_n(ordered, std::min<std::size_t>(4 * kBlocks, out.size() - done), out.data() + done);
  }
}

std::uint64_t UniformInt(std::uint64_t key, std::uint64_t index, std::uint64_t bound) {
  SPOTLIGHT_REQUIRE(bound > 0, "bound = 0");
  const auto words = Philox(key, index, kIntStream);
  const std::uint64_t bits = words[0] | std::uint64_t{words[1]} << 32;
  // The high half of bits * bound: a bias of bound / 2^64 at most.
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * bound >> 64);
}

double UniformDouble(std::uint64_t key, std::uint64_t index) {
  const auto words = Philox(key, index, kDoubleStream);
  const std::uint64_t bits = words[0] | std::uint64_t{words[1]} << 32;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace spotlight
