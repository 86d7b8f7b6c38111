#include "plan/exploration_planner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNewWeight = 0.3;  // of a training phase in the moving averages
constexpr double kWiden = 0.05;     // of the margin after an overrun
constexpr double kNarrow = 0.1;     // share of the excess that a success takes off
constexpr double kMostMargin = 0.5;
constexpr std::size_t kTimes = 3;  // numbers of a saved state before the number of arms

void Average(double value, double& average) {
  average = average < 0 ? value : average + kNewWeight * (value - average);
}

}  // namespace

PlannerOptions PlannerOptions::From(const Config& config) {
  const ExploreConfig& explore = config.explore;
  const int steps = config.sampler.steps;
  PlannerOptions options{.bandit = {.rule = explore.planner,
                                    .ucb = explore.ucb,
                                    .discount = explore.discount,
                                    .run_seed = config.run.seed},
                         .arms = {{explore.seeds, explore.steps == 0 ? steps : explore.steps}},
                         .steps = steps,
                         .margin = explore.margin};
  if (explore.planner == ArmRule::kFixed || explore.seeds == 0) return options;
  options.arms = ArmGrid(config.group.images, explore.seeds, steps);
  if (explore.cache != ExploreConfig::Cache::kSteps) {
    std::erase_if(options.arms, [&](const Arm& arm) { return arm.steps != steps; });
  }
  return options;
}

ExplorationPlanner::ExplorationPlanner(PlannerOptions options)
    : options_(std::move(options)),
      costs_(options_.steps),
      bandit_(options_.arms.size(), options_.bandit),
      margin_(options_.margin) {
  SPOTLIGHT_REQUIRE(!options_.arms.empty(), "a planner without arms");
  SPOTLIGHT_REQUIRE(options_.margin >= 0 && options_.margin < 1, "margin of the planner");
}

void ExplorationPlanner::ObserveTraining(double train_seconds, double push_seconds, bool overran) {
  SPOTLIGHT_REQUIRE(std::isfinite(train_seconds) && train_seconds >= 0, "seconds of training");
  SPOTLIGHT_REQUIRE(std::isfinite(push_seconds) && push_seconds >= 0, "seconds of the push");
  Average(train_seconds, train_seconds_);
  Average(push_seconds, push_seconds_);
  const double most = std::max(kMostMargin, options_.margin);
  margin_ = overran ? std::min(most, margin_ + kWiden) : margin_ - kNarrow * (margin_ - options_.margin);
}

std::vector<std::size_t> ExplorationPlanner::Offered(const Decision& decision, bool known) const {
  std::vector<std::size_t> offered;
  int most = 0;  // steps of a feasible arm with as many seeds: the grid is sorted
  for (std::size_t i = options_.arms.size(); i-- > 0;) {
    const bool asked = known && options_.bandit.rule != ArmRule::kFixed;
    const int steps = options_.arms[i].steps;
    if (asked && (!decision.options[i].feasible || (steps <= most && !options_.dominated))) continue;
    most = std::max(most, steps);
    offered.push_back(i);
  }
  // Forwards stand for seconds while those are unknown, and break ties between them.
  const auto cost = [&](std::size_t i) {
    const ArmOption& option = decision.options[i];
    return std::pair(known ? option.seconds : 0, static_cast<double>(option.arm.seeds) * option.arm.steps);
  };
  std::sort(offered.begin(), offered.end(),
            [&](std::size_t a, std::size_t b) { return cost(a) != cost(b) ? cost(a) < cost(b) : a < b; });
  if (!known) offered.resize(1);
  return offered;
}

Decision ExplorationPlanner::Decide(int prompts, const SlotCounts& slots, std::uint32_t iteration) const {
  SPOTLIGHT_REQUIRE(prompts >= 1, "prompts to explore");
  Decision decision{.iteration = iteration};
  decision.budget = train_seconds_ < 0 ? kNan : (1 - margin_) * std::max(0.0, train_seconds_ - push_seconds_);
  bool known = train_seconds_ >= 0;
  for (const Arm& arm : options_.arms) {
    const std::optional<double> seconds = costs_.Seconds(arm, prompts, slots);
    known = known && seconds.has_value();
    decision.options.push_back({arm, seconds.value_or(kNan), false, kNan});
  }
  for (ArmOption& option : decision.options) option.feasible = known && option.seconds <= decision.budget;

  const bool live = std::any_of(slots.begin(), slots.end(), [](const auto& entry) { return entry.second > 0; });
  if (!live) return decision;
  const std::vector<std::size_t> offered = Offered(decision, known);
  if (offered.empty()) return decision;

  const std::vector<double> scores = bandit_.Scores(offered, iteration);
  for (std::size_t i = 0; i < offered.size(); ++i) {
    decision.options[offered[i]].score = scores[i];
  }
  // The first of equals is the cheapest.
  const auto best = std::max_element(scores.begin(), scores.end()) - scores.begin();
  decision.chosen = decision.options[offered[static_cast<std::size_t>(best)]].arm;
  return decision;
}

void ExplorationPlanner::Credit(const ArmOutcome& outcome) {
  if (outcome.arm == Arm{}) return;
  const auto arm = std::find(options_.arms.begin(), options_.arms.end(), outcome.arm);
  SPOTLIGHT_REQUIRE(arm != options_.arms.end(), "an arm of the grid");
  SPOTLIGHT_REQUIRE(std::isfinite(outcome.spread) && outcome.spread >= 0, "spread of the kept seeds");
  SPOTLIGHT_REQUIRE(outcome.scored <= outcome.wanted && outcome.wanted > 0, "scored seeds of a pull");
  const double share = static_cast<double>(outcome.scored) / static_cast<double>(outcome.wanted);
  bandit_.Credit(static_cast<std::size_t>(arm - options_.arms.begin()), outcome.iteration, share < 0.5 ? 0 : share,
                 outcome.spread);
}

std::vector<double> ExplorationPlanner::State() const {
  std::vector<double> state = {train_seconds_, push_seconds_, margin_, static_cast<double>(options_.arms.size())};
  for (const Arm& arm : options_.arms) {
    state.insert(state.end(), {static_cast<double>(arm.seeds), static_cast<double>(arm.steps)});
  }
  for (const std::vector<double>& part : {bandit_.State(), costs_.State()}) {
    state.insert(state.end(), part.begin(), part.end());
  }
  return state;
}

void ExplorationPlanner::Restore(std::span<const double> state) {
  SPOTLIGHT_REQUIRE(state.size() > kTimes && state[kTimes] >= 1, "numbers of a saved planner");
  const auto saved = static_cast<std::size_t>(state[kTimes]);
  const std::size_t bandit = kTimes + 1 + 2 * saved;
  const std::size_t costs = bandit + ArmBandit::StateSize(saved);
  SPOTLIGHT_REQUIRE(state.size() >= costs, "numbers of a saved planner");
  train_seconds_ = state[0];
  push_seconds_ = state[1];
  margin_ = std::max(options_.margin, state[2]);
  std::vector<int> places(options_.arms.size(), -1);  // of our arms among the saved ones
  for (std::size_t i = 0; i < saved; ++i) {
    const Arm arm = {static_cast<int>(state[kTimes + 1 + 2 * i]), static_cast<int>(state[kTimes + 2 + 2 * i])};
    const auto ours = std::find(options_.arms.begin(), options_.arms.end(), arm);
    if (ours != options_.arms.end())
      places[static_cast<std::size_t>(ours - options_.arms.begin())] = static_cast<int>(i);
  }
  bandit_.Restore(state.subspan(bandit, costs - bandit), places);
  costs_.Restore(state.subspan(costs));
}

}  // namespace spotlight
