#include "driver/exploration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace spotlight {
namespace {

// The arm of explore/seeds and explore/steps.
Arm FixedArm(const Config& config) {
  return {config.explore.seeds, config.explore.steps > 0 ? config.explore.steps : config.sampler.steps};
}

// Mean over the groups of the standard deviation of their pools.
double PoolSpread(const IterationPlan& plan) {
  double sum = 0;
  int groups = 0;
  for (const SeedChoice& group : plan.groups) {
    if (std::isnan(group.pool_std)) continue;
    sum += group.pool_std;
    ++groups;
  }
  return groups > 0 ? sum / groups : 0;
}

}  // namespace

Exploration::Exploration(const Config& config, const Recording* recording, const RunState& state)
    : config_(config), recording_(recording), planner_(PlannerOptions::From(config)), staleness_(StalenessOptions{}) {
  if (!state.planner.empty()) {
    constexpr std::size_t kOutcome = 5;
    SPOTLIGHT_REQUIRE(state.planner.size() > kOutcome, "a planner's state");
    outcome_ = {.iteration = static_cast<std::uint32_t>(state.planner[0]),
                .arm = {static_cast<int>(state.planner[1]), static_cast<int>(state.planner[2])},
                .wanted = static_cast<std::size_t>(state.planner[3]),
                .scored = static_cast<std::size_t>(state.planner[4])};
    planner_.Restore(std::span(state.planner).subspan(kOutcome));
  }
  if (!state.staleness.empty()) staleness_.Restore(state.staleness);
}

void Exploration::Save(RunState& state) const {
  state.planner = {static_cast<double>(outcome_.iteration), static_cast<double>(outcome_.arm.seeds),
                   static_cast<double>(outcome_.arm.steps), static_cast<double>(outcome_.wanted),
                   static_cast<double>(outcome_.scored)};
  const std::vector<double> planner = planner_.State();
  state.planner.insert(state.planner.end(), planner.begin(), planner.end());
  state.staleness = staleness_.State();
}

std::vector<Request> Exploration::Plan(const IterationPlan& next, const std::vector<int>& slots,
                                       std::uint64_t version) {
  decision_ = {.iteration = next.iteration, .budget = kUnknown, .options = {}, .chosen = FixedArm(config_)};
  slots_ = slots.size();
  if (recording_ != nullptr) return Recorded(next, version);
  const int prompts = static_cast<int>(next.prompts.size());
  if (!config_.explore.Awaited()) decision_ = planner_.Decide(prompts, CountSlots(slots), next.iteration);
  const Arm arm = decision_.chosen;
  outcome_ = {.iteration = next.iteration,
              .arm = arm,
              .wanted = static_cast<std::size_t>(arm.seeds) * next.prompts.size(),
              .scored = 0};
  const int real_steps = arm.steps < config_.sampler.steps ? arm.steps : 0;
  return ExploreRequests(next, arm.seeds, real_steps, version);
}

std::vector<Request> Exploration::Recorded(const IterationPlan& next, std::uint64_t version) {
  std::vector<Request> requests;
  const auto found = recording_->explored.find(static_cast<std::int64_t>(next.iteration) - 1);
  if (found == recording_->explored.end()) return requests;
  for (const ExploredRow& row : found->second) {
    const bool drawn = std::find(next.prompts.begin(), next.prompts.end(), row.prompt_index) != next.prompts.end();
    if (!drawn) {
      throw UserError(
          fmt::format("explore/replay = {}: iteration {} explored prompt {}, which this run does not draw; "
                      "replay it with its own input",
                      recording_->path, row.step, row.prompt_index));
    }
    requests.push_back({.kind = RequestKind::kExplore,
                        .iteration = next.iteration,
                        .prompt_index = static_cast<std::uint32_t>(row.prompt_index),
                        .seed = row.seed,
                        .weight_version = version,
                        .window_begin = next.window_begin,
                        .window_end = next.window_end,
                        .real_steps = static_cast<std::uint32_t>(row.real_steps)});
  }
  return requests;
}

void Exploration::Observe(const Measured& measured) {
  const auto observe = [this](const BatchTimes& times, bool explored) {
    const double requests = times.requests;
    CostReport report{.degree = static_cast<int>(times.degree),
                      .requests = requests,
                      .real_passes = requests * times.real_passes,
                      .real_seconds = times.real_seconds,
                      .cached_passes = requests * times.cached_passes,
                      .cached_seconds = times.cached_seconds,
                      .decode_seconds = times.decode_seconds,
                      .reward_seconds = times.reward_seconds,
                      .explored = explored};
    if (config_.explore.cache != ExploreConfig::Cache::kSteps) {  // passes of one mean cost: which are real varies
      report.real_passes += std::exchange(report.cached_passes, 0);
      report.real_seconds += std::exchange(report.cached_seconds, 0);
    }
    planner_.ObserveBatch(report);
  };
  for (const BatchTimes& times : measured.others) observe(times, false);
  for (const BatchTimes& times : measured.explored) observe(times, true);
  const bool whole = !measured.departed && measured.slots >= slots_;
  planner_.ObserveTraining(measured.train_seconds, measured.push_seconds, whole && measured.scored < outcome_.wanted);
}

void Exploration::Choose(std::vector<Sample> explored, IterationPlan& next, Values& values) {
  explored_ = std::move(explored);
  outcome_.scored = explored_.size();
  ChooseSeeds(config_, explored_, next);
  values["explore_images"] = static_cast<double>(explored_.size());
  if (recording_ == nullptr) {  // which has what came of a choice, not the choice
    values["explore_seeds"] = decision_.chosen.seeds;
    values["explore_steps"] = decision_.chosen.steps;
  }
  if (!std::isnan(decision_.budget)) values["explore_budget_s"] = decision_.budget;
  values["explore_reward_std_mean"] = PoolSpread(next);
}

void Exploration::Credit(const IterationPlan& plan, std::span<const double> rewards, const Advantages& advantages) {
  const std::size_t images = rewards.size() / plan.groups.size();
  double spread = 0;
  int groups = 0;
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const SeedChoice& group = plan.groups[g];
    for (std::size_t i = 0; i < images; ++i) {
      if (group.control[i] == 0) continue;
      staleness_.Add({plan.iteration, group.explored[i], rewards[g * images + i], group.pool_mean});
    }
    if (std::isnan(advantages.group_std[g])) continue;
    spread += advantages.group_std[g];
    ++groups;
  }
  if (outcome_.iteration == plan.iteration && outcome_.wanted > 0 && groups > 0 && !config_.explore.Awaited()) {
    outcome_.spread = spread / groups;
    planner_.Credit(outcome_);
  }
  outcome_ = {};
}

void Exploration::JudgeStaleness(std::uint32_t iteration, Values& values) {
  const double rho = staleness_.Correlation();
  if (std::isnan(rho)) return;
  values["explore_control_r"] = rho;
  if (warned_ || rho >= StalenessOptions{}.bound) return;  // the interval would hold the bound
  const Staleness staleness = staleness_.Estimate();
  warned_ = staleness.harmful;
  if (!staleness.harmful) return;
  LogWarning(
      fmt::format("iteration {}: explored rewards tell little about fresh ones: their correlation over the {} "
                  "seeds kept by chance lately is {:.2f} (95 %: {:.2f} to {:.2f}). Lower train/lr or "
                  "train/updates, or take more computed steps (explore/steps)",
                  iteration + 1, staleness.seeds, staleness.rho, staleness.interval.low, staleness.interval.high));
}

std::vector<DecisionRow> Exploration::TakeDecisions(std::uint32_t step) {
  std::vector<DecisionRow> rows;
  for (const ArmOption& option : decision_.options) {
    rows.push_back({.step = step,
                    .seeds = option.arm.seeds,
                    .real_steps = option.arm.steps,
                    .cost_s = option.seconds,
                    .budget_s = decision_.budget,
                    .feasible = option.feasible,
                    .score = option.score,
                    .chosen = option.arm == decision_.chosen});
  }
  decision_ = {};
  return rows;
}

}  // namespace spotlight
