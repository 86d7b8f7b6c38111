#include "plan/window.hpp"

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kWindowStream = 0x77696e646f77ULL;

}  // namespace

int DrawWindowStart(std::uint64_t run_seed, std::uint32_t iteration, int first, int last) {
  SPOTLIGHT_REQUIRE(first <= last, "range of the window's start");
  const auto choices = static_cast<std::uint64_t>(last - first) + 1;
  return first + static_cast<int>(UniformInt(StreamKey({kWindowStream, run_seed, iteration}), 0, choices));
}

}  // namespace spotlight
