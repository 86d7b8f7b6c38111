#include "plan/rank_agreement.hpp"

#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"
#include "plan/advantage.hpp"
#include "plan/correlation.hpp"
#include "plan/selection.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kRandomStream = 0x737072656164ULL;
constexpr std::uint64_t kResampleStream = 0x70726f6d707473ULL;

double SpreadOf(const std::vector<double>& rewards, const std::vector<int>& chosen) {
  std::vector<double> values;
  values.reserve(chosen.size());
  for (const int seed : chosen) values.push_back(rewards[static_cast<std::size_t>(seed)]);
  return MomentsOf(values).std;
}

}  // namespace

RankAgreement CompareRanks(const SeedRewards& reference, const SeedRewards& rewards, int k,
                           ExploreConfig::Select rule) {
  SPOTLIGHT_REQUIRE(reference.size() == rewards.size() && k >= 2, "sizes of a comparison");
  RankAgreement agreement;
  for (std::size_t p = 0; p < reference.size(); ++p) {
    SPOTLIGHT_REQUIRE(rewards[p].size() == reference[p].size() && std::ssize(rewards[p]) >= k, "seeds of a prompt");
    agreement.spearman.push_back(Spearman(reference[p], rewards[p]));
    agreement.kendall.push_back(KendallTauB(reference[p], rewards[p]));
    agreement.overlap.push_back(ExtremeOverlap(reference[p], rewards[p], k / 2));
    agreement.spread.push_back(SpreadOf(reference[p], SelectSeeds(rewards[p], k, rule)));
  }
  return agreement;
}

std::vector<double> RandomSpread(const SeedRewards& reference, int k) {
  constexpr std::uint64_t kDraws = 200;
  std::vector<double> spreads;
  for (const std::vector<double>& rewards : reference) {
    double sum = 0;
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::uint64_t key = StreamKey({kRandomStream, spreads.size(), draw});
      // All of them control seeds: the rule chooses none.
      sum += SpreadOf(rewards, SelectSeedsWithControl(rewards, k, ExploreConfig::Select::kVariance, 1, key).kept);
    }
    spreads.push_back(sum / static_cast<double>(kDraws));
  }
  return spreads;
}

std::vector<double> BestSpread(const SeedRewards& reference, int k) {
  std::vector<double> spreads;
  for (const std::vector<double>& rewards : reference) {
    spreads.push_back(SpreadOf(rewards, SelectSeeds(rewards, k, ExploreConfig::Select::kVariance)));
  }
  return spreads;
}

double SpreadGained(std::span<const double> spread, std::span<const double> random, std::span<const double> best) {
  const double from = MomentsOf(random).mean, to = MomentsOf(best).mean;
  return to > from ? (MomentsOf(spread).mean - from) / (to - from) : std::numeric_limits<double>::quiet_NaN();
}

MeanOverPrompts AverageOverPrompts(std::span<const double> values) {
  return {MomentsOf(values).mean, MeanInterval(values, kResampleStream)};
}

}  // namespace spotlight
