#include "plan/bandit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kThompsonStream = 0x74686f6d70736f6eULL;
constexpr double kScaleDecay = 0.99;  // a credited pull
constexpr double kForgotten = 1e-6;   // an arm with fewer discounted pulls counts as never pulled
constexpr double kCutWait = 20;       // iterations that a cut arm waits

}  // namespace

ArmBandit::ArmBandit(std::size_t arms, const BanditOptions& options) : options_(options), arms_(arms) {
  SPOTLIGHT_REQUIRE(std::isfinite(options.ucb) && options.ucb >= 0, "width of the bandit's bonus");
  SPOTLIGHT_REQUIRE(options.discount > 0 && options.discount <= 1, "discount of the bandit");
}

std::vector<double> ArmBandit::Scores(std::span<const std::size_t> offered, std::uint32_t iteration) const {
  std::vector<float> draws;
  if (options_.rule == ArmRule::kThompson) {
    draws.resize(arms_.size());
    FillNormal(StreamKey({kThompsonStream, options_.run_seed, iteration}), 0, draws);
  }
  double all = 0;
  for (const Record& arm : arms_) all += arm.pulls;
  // Fewer than one pull in all is possible, when it was cut or long ago.
  const double log_pulls = std::log(std::max(1.0, all));

  const auto score = [&](std::size_t index) {
    const Record& arm = arms_[index];
    const bool cut = arm.pulls == 0 && arm.last >= 0;
    if (cut && iteration < arm.last + kCutWait) return -kInfinity;
    if (arm.pulls < kForgotten) return kInfinity;
    const double mean = scale_ > 0 ? arm.rewards / arm.pulls / scale_ : 0;
    switch (options_.rule) {
      case ArmRule::kUcb:
        return mean + options_.ucb * std::sqrt(2 * log_pulls / arm.pulls);
      case ArmRule::kThompson:
        return mean + options_.ucb / std::sqrt(arm.pulls) * static_cast<double>(draws[index]);
      case ArmRule::kRoundRobin:
        return iteration - arm.last;
      case ArmRule::kGreedy:
      case ArmRule::kFixed:
        return mean;
    }
    return mean;
  };
  std::vector<double> scores;
  for (const std::size_t index : offered) scores.push_back(score(index));
  return scores;
}

void ArmBandit::Credit(std::size_t arm, std::uint32_t iteration, double weight, double reward) {
  SPOTLIGHT_REQUIRE(arm < arms_.size(), "index of an arm");
  SPOTLIGHT_REQUIRE(weight >= 0 && weight <= 1, "weight of a pull");
  arms_[arm].last = iteration;
  if (weight == 0) return;
  SPOTLIGHT_REQUIRE(std::isfinite(reward) && reward >= 0, "reward of a pull");
  for (Record& record : arms_) {
    record.pulls *= options_.discount;
    record.rewards *= options_.discount;
  }
  arms_[arm].pulls += weight;
  arms_[arm].rewards += weight * reward;
  scale_ = std::max(reward, kScaleDecay * scale_);
}

std::vector<double> ArmBandit::State() const {
  std::vector<double> state = {scale_};
  for (const Record& arm : arms_) state.insert(state.end(), {arm.pulls, arm.rewards, arm.last});
  return state;
}

void ArmBandit::Restore(std::span<const double> state, std::span<const int> places) {
  SPOTLIGHT_REQUIRE(places.size() == arms_.size(), "a place for each arm");
  SPOTLIGHT_REQUIRE(!state.empty(), "numbers of a saved bandit");
  scale_ = state[0];
  for (std::size_t i = 0; i < arms_.size(); ++i) {
    arms_[i] = {};
    if (places[i] < 0) continue;
    const std::span<const double> arm = state.subspan(StateSize(static_cast<std::size_t>(places[i])), StateSize(1) - 1);
    arms_[i] = {arm[0], arm[1], arm[2]};
  }
}

}  // namespace spotlight
