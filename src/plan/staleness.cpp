#include "plan/staleness.hpp"

#include <cmath>
#include <cstddef>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/correlation.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kStalenessStream = 0x7374616c65ULL;
constexpr std::size_t kNumbers = 4;  // of a seed in the state

}  // namespace

StalenessEstimate::StalenessEstimate(const StalenessOptions& options) : options_(options) {
  SPOTLIGHT_REQUIRE(options.window >= 1 && options.least >= 2, "sizes of the estimate");
}

void StalenessEstimate::Add(const ControlSeed& seed) {
  SPOTLIGHT_REQUIRE(seeds_.empty() || seed.iteration >= seeds_.back().iteration, "order of control seeds");
  if (!std::isfinite(seed.explored) || !std::isfinite(seed.fresh) || !std::isfinite(seed.pool_mean)) return;
  seeds_.push_back(seed);
  while (seeds_.front().iteration + static_cast<std::uint32_t>(options_.window) <= seed.iteration) seeds_.pop_front();
}

StalenessEstimate::Pairs StalenessEstimate::Deviations() const {
  Pairs pairs;
  if (std::ssize(seeds_) < options_.least) return pairs;
  for (const ControlSeed& seed : seeds_) {
    pairs.explored.push_back(seed.explored - seed.pool_mean);
    pairs.fresh.push_back(seed.fresh - seed.pool_mean);
  }
  return pairs;
}

double StalenessEstimate::Correlation() const {
  const Pairs pairs = Deviations();
  return pairs.explored.empty() ? std::numeric_limits<double>::quiet_NaN() : Pearson(pairs.explored, pairs.fresh);
}

Staleness StalenessEstimate::Estimate() const {
  const auto [explored, fresh] = Deviations();
  Staleness staleness{.seeds = static_cast<int>(seeds_.size()), .rho = Correlation()};
  if (explored.empty()) return staleness;
  std::vector<double> x(explored.size());
  std::vector<double> y(explored.size());
  const auto rho = [&](std::span<const int> drawn) {
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      x[i] = explored[static_cast<std::size_t>(drawn[i])];
      y[i] = fresh[static_cast<std::size_t>(drawn[i])];
    }
    return Pearson(x, y);
  };
  staleness.interval = PercentileBootstrap(staleness.seeds, rho, StreamKey({kStalenessStream}));
  staleness.harmful = staleness.interval.high < options_.bound;
  return staleness;
}

std::vector<double> StalenessEstimate::State() const {
  std::vector<double> state;
  for (const ControlSeed& seed : seeds_) {
    state.insert(state.end(), {static_cast<double>(seed.iteration), seed.explored, seed.fresh, seed.pool_mean});
  }
  return state;
}

void StalenessEstimate::Restore(std::span<const double> state) {
  SPOTLIGHT_REQUIRE(state.size() % kNumbers == 0, "numbers of a saved estimate");
  seeds_.clear();
  for (std::size_t i = 0; i < state.size(); i += kNumbers) {
    seeds_.push_back({static_cast<std::uint32_t>(state[i]), state[i + 1], state[i + 2], state[i + 3]});
  }
}

}  // namespace spotlight
