#include "driver/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/dump.hpp"
#include "driver/signals.hpp"
#include "driver/worker.hpp"
#include "io/checkpoint.hpp"
#include "plan/correlation.hpp"
#include "record/export.hpp"
#include "record/history.hpp"

namespace spotlight {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

Coordinator::Coordinator(const Config& config, const Resources& resources, Dispatch& dispatch, RunRecord& record,
                         RunState state, int trainers, const Recording* recording)
    : config_(config),
      resources_(resources),
      dispatch_(dispatch),
      record_(record),
      state_(std::move(state)),
      prompt_sampler_(resources.train.prompts, config.prompts.tag_weights, config.run.seed),
      exploration_(config, recording, state_),
      progress_(config.run.iterations),
      elapsed_before_(state_.elapsed_seconds),
      trainers_(trainers),
      first_iteration_(static_cast<int>(state_.next_iteration)) {
  for (std::size_t pool = 0; pool < kPools; ++pool) {
    for (std::size_t use = 0; use < kUses; ++use) {
      dispatch_.ledger().Add(static_cast<Pool>(pool), static_cast<Use>(use), state_.ledger_seconds[pool][use]);
    }
  }
  dispatch_.ledger().AddSteps(state_.useful_steps, state_.all_steps);
  if (state_.plan.prompts.empty() && state_.next_iteration < static_cast<std::uint32_t>(config.run.iterations)) {
    state_.plan = PlanIteration(config, prompt_sampler_, state_.next_iteration);
  }
}

int Coordinator::Run() {
  // A new run saves its start: whatever ends it, -r latest goes on, and a disk that is too small shows at once.
  if (state_.restarts > 0) {
    last_checkpoint_ = static_cast<int>(state_.next_iteration);
  } else {
    SaveCheckpoint();
    longest_record_seconds_ = Seconds(start_);
  }
  const std::uint32_t iterations = static_cast<std::uint32_t>(config_.run.iterations);
  std::string reason;
  // One more iteration and its checkpoint must fit.
  const auto stops = [&] {
    reason = StopReason(1.5 * longest_iteration_ + longest_record_seconds_);
    return !reason.empty();
  };
  while (state_.next_iteration < iterations && !stops()) RunIteration();
  SaveCheckpoint();
  if (state_.next_iteration < iterations) {
    TellStopped(fmt::format("after iteration {} of {}", state_.next_iteration, iterations), reason);
    return kExitStopped;
  }
  return FinalEvaluation() ? kExitFinished : kExitStopped;
}

void Coordinator::TellStopped(const std::string& where, const std::string& reason) {
  progress_.Line(fmt::format("stopped {}: {}. Go on with: -r latest -d {}", where, reason, record_.directory()));
}

void Coordinator::RunIteration() {
  const auto start = std::chrono::steady_clock::now();
  const std::uint32_t iteration = state_.next_iteration;
  Values values;
  dispatch_.BeginIteration(iteration);

  // rollout: the chosen seeds with the current weights, and now and then the held-out prompts
  std::vector<Sample> rollouts;
  Evaluation evaluation;
  const bool evaluate = EvaluationDue();
  RolloutPhase(evaluate, rollouts, evaluation);
  values["time_rollout_s"] = Seconds(start);
  if (evaluate) RecordEvaluation(evaluation, values);

  // select: advantages of the kept seeds
  const double rolled_out = static_cast<double>(rollouts.size());
  if (config_.explore.when == ExploreConfig::When::kCritical) ChooseRollouts(config_, rollouts, state_.plan);
  const Advantages advantages = ScoreRollouts(rollouts, values);

  // train on version v, while explorers score the next iteration's seeds with version v
  IterationPlan next = PlanIteration(config_, prompt_sampler_, iteration + 1);
  Trained trained = TrainPhase(rollouts, advantages, next, values);

  // publish version v + 1
  Publish(trained);
  values.insert(trained.metrics.begin(), trained.metrics.end());

  // record
  values["time_step_s"] = Seconds(start);
  longest_iteration_ = std::max(longest_iteration_, values["time_step_s"]);
  step_seconds_ += values["time_step_s"];
  if (config_.explore.Overlaps()) tail_seconds_ += values["time_explore_tail_s"];
  values["perf_images_per_s"] = (rolled_out + values["explore_images"] + evaluation.images) / values["time_step_s"];
  const auto recording = std::chrono::steady_clock::now();
  Record(rollouts, advantages, next, std::move(values));
  state_.plan = std::move(next);
  state_.next_iteration = iteration + 1;
  const bool due = config_.checkpoint.every > 0 && (iteration + 1) % config_.checkpoint.every == 0;
  if (due || TakeCheckpointRequest(record_.directory())) SaveCheckpoint();
  last_record_seconds_ = Seconds(recording);
  longest_record_seconds_ = std::max(longest_record_seconds_, last_record_seconds_);
}

void Coordinator::RolloutPhase(bool evaluate, std::vector<Sample>& rollouts, Evaluation& evaluation) {
  std::vector<Request> held_out;
  if (evaluate) {
    const int pictures = PicturesDue() ? config_.output.grid_images : 0;
    held_out = EvaluationRequests(config_, resources_.eval.prompts, state_.next_iteration, pictures);
    dispatch_.Add(held_out);
  }
  const std::vector<Request> requests = RolloutRequests(state_.plan, state_.next_iteration);
  const std::size_t total = requests.size() + held_out.size();
  dispatch_.Add(requests);
  dispatch_.ServeUntil([&] { return dispatch_.Done(RequestKind::kRollout) && dispatch_.Done(RequestKind::kEvaluate); },
                       [&] {
                         progress_.Phase(
                             evaluate ? "rollout, evaluate" : "rollout",
                             dispatch_.CountDone(RequestKind::kRollout) + dispatch_.CountDone(RequestKind::kEvaluate),
                             total);
                       });
  rollouts = dispatch_.Take(RequestKind::kRollout);
  if (evaluate) {
    evaluation = SummarizeEvaluation(dispatch_.Take(RequestKind::kEvaluate), resources_.reward->names(),
                                     resources_.eval.prompts);
  }
}

Advantages Coordinator::ScoreRollouts(const std::vector<Sample>& rollouts, Values& values) {
  const std::size_t groups = state_.plan.prompts.size(), images = static_cast<std::size_t>(config_.group.images);
  std::vector<double> rewards;
  std::vector<int> group;
  for (std::size_t i = 0; i < rollouts.size(); ++i) {
    rewards.push_back(rollouts[i].reward);
    group.push_back(static_cast<int>(i / images));
  }
  const AdvantageOptions options{.global_std = config_.train.advantage_std == TrainConfig::AdvantageStd::kGlobal,
                                 .clip = config_.train.advantage_clip};
  std::vector<Moments> pools;
  if (config_.train.advantage_from == TrainConfig::AdvantageFrom::kPool) {
    for (const SeedChoice& choice : state_.plan.groups) pools.push_back(PoolOf(config_, choice));
  }
  Advantages advantages = GroupAdvantages(rewards, group, static_cast<int>(groups), options, pools);
  double mean = 0, spread = 0, flat = 0, rho = 0;
  int correlated = 0;
  const auto left_out = std::count_if(rewards.begin(), rewards.end(), [](double reward) { return std::isnan(reward); });
  const double scored = static_cast<double>(rewards.size()) - static_cast<double>(left_out);
  for (const double reward : rewards) mean += std::isnan(reward) ? 0 : reward / scored;
  for (std::size_t g = 0; g < groups; ++g) {
    if (!std::isnan(advantages.group_std[g])) spread += advantages.group_std[g] / static_cast<double>(groups);
    flat += advantages.zero_spread[g] / static_cast<double>(groups);
    const double group_rho =
        Spearman(state_.plan.groups[g].explored, std::span<const double>(rewards).subspan(g * images, images));
    if (std::isnan(group_rho)) continue;
    rho += group_rho;
    ++correlated;
  }
  values["reward_mean"] = mean;
  values["reward_std"] = advantages.global_std;
  values["reward_left_out"] = static_cast<double>(left_out);
  values["group_reward_std_mean"] = spread;
  values["group_zero_spread_ratio"] = flat;
  if (correlated > 0) values["explore_rho"] = rho / correlated;
  exploration_.Credit(state_.plan, rewards, advantages);
  return advantages;
}

Trained Coordinator::TrainPhase(const std::vector<Sample>& rollouts, const Advantages& advantages, IterationPlan& next,
                                Values& values) {
  const auto start = std::chrono::steady_clock::now();
  const bool last = state_.next_iteration + 1 >= static_cast<std::uint32_t>(config_.run.iterations);
  const bool explore = config_.explore.Overlaps() && !last;
  const Roster::Counts before = dispatch_.roster().counts;
  std::size_t wanted = 0;
  if (explore) {
    std::vector<Request> requests = exploration_.Plan(next, dispatch_.roster().Slots(), state_.next_iteration);
    wanted = requests.size();
    dispatch_.Add(std::move(requests));
  }
  std::vector<TrainSample> samples;
  for (std::size_t i = 0; i < rollouts.size(); ++i) samples.push_back({rollouts[i], advantages.values[i]});
  dispatch_.StartTraining(state_.next_iteration, std::move(samples));
  bool judged = !config_.explore.Overlaps();
  const auto judge = [&] {
    if (!std::exchange(judged, true)) exploration_.JudgeStaleness(state_.next_iteration, values);
  };
  const auto show = [&] {
    if (!explore) return;
    progress_.Phase("train and explore", dispatch_.CountDone(RequestKind::kExplore), wanted);
    if (dispatch_.CountDone(RequestKind::kExplore) > 0) judge();  // trainers have got their task: nobody waits for it
  };
  dispatch_.ServeUntil([&] { return dispatch_.trained(); }, show);
  const auto trained_at = std::chrono::steady_clock::now();
  const double train_seconds = Seconds(start);
  Trained trained = dispatch_.TakeTrained();
  if (explore) {
    // What must be explored whole gives the same bits every time. A deadline cuts: training's end may wait for the
    // batches in flight only for the grace.
    const double grace =
        config_.explore.Awaited() ? std::numeric_limits<double>::infinity() : config_.explore.grace * train_seconds;
    dispatch_.ServeUntil([&] { return dispatch_.Done(RequestKind::kExplore) || Seconds(trained_at) >= grace; }, show);
    dispatch_.Cancel(RequestKind::kExplore);
    std::vector<Sample> explored = dispatch_.Take(RequestKind::kExplore);
    const Roster& roster = dispatch_.roster();
    Exploration::Measured measured{.train_seconds = train_seconds,
                                   .push_seconds = trained.metrics["time_push_s"],
                                   .explored = dispatch_.TakeTimes(RequestKind::kExplore),
                                   .others = dispatch_.TakeTimes(RequestKind::kRollout),
                                   .slots = roster.Slots().size(),
                                   .departed = roster.counts.lost + roster.counts.left > before.lost + before.left,
                                   .scored = explored.size()};
    for (const BatchTimes& times : dispatch_.TakeTimes(RequestKind::kEvaluate)) measured.others.push_back(times);
    exploration_.Observe(measured);
    exploration_.Choose(std::move(explored), next, values);
  }
  judge();
  values["time_explore_tail_s"] = Seconds(trained_at);
  values["time_train_s"] = Seconds(start);
  return trained;
}

void Coordinator::Publish(Trained& trained) {
  const double deviation = trained.metrics.at("policy_ratio_first_max_dev");
  if (deviation > config_.train.ratio_tolerance) {
    LogWarning(
        fmt::format("iteration {}: before the first update a probability ratio is off by {:.3g} "
                    "(train/ratio_tolerance = {:.3g}): rollout and training do not compute the same numbers",
                    trained.iteration + 1, deviation, config_.train.ratio_tolerance));
  }
  const bool finite =
      std::all_of(trained.weights.begin(), trained.weights.end(), [](float w) { return std::isfinite(w); });
  if (!finite) {
    throw RunFailed(fmt::format("iteration {}: training diverged, the weights are not finite; the last checkpoint is "
                                "good. Lower train/lr or train/grad_norm",
                                trained.iteration + 1),
                    kExitStopped);
  }
  dispatch_.Publish({trained.next_version, false}, std::move(trained.weights));
  if (!trained.ema_weights.empty()) dispatch_.Publish({trained.next_version, true}, std::move(trained.ema_weights));
}

void Coordinator::Record(const std::vector<Sample>& rollouts, const Advantages& advantages, const IterationPlan& next,
                         Values values) {
  values["time_record_s"] = last_record_seconds_;
  values["ranks_reserved"] = trainers_;
  values["ranks_spot"] = dispatch_.roster().explorers();
  AddCost(dispatch_.ledger(), values);
  const int iteration = static_cast<int>(state_.next_iteration);
  record_.AddIteration(state_.plan, values, rollouts, advantages, exploration_.TakeExplored(), next,
                       exploration_.TakeDecisions(state_.next_iteration));
  const double left = (config_.run.iterations - iteration - 1) * (Elapsed() - elapsed_before_) /
                      std::max(1, iteration + 1 - first_iteration_);
  progress_.Step(iteration, values, left);
}

bool Coordinator::EvaluationDue() const {
  const int iteration = static_cast<int>(state_.next_iteration);
  return iteration == 0 || (config_.eval.every > 0 && iteration % config_.eval.every == 0);
}

bool Coordinator::PicturesDue() const {
  const int iteration = static_cast<int>(state_.next_iteration);
  if (iteration == 0 || iteration == config_.run.iterations) return true;
  return config_.output.grid_every > 0 &&
         iteration / config_.output.grid_every > last_pictures_ / config_.output.grid_every;
}

void Coordinator::RecordEvaluation(const Evaluation& evaluation, Values& values) {
  AddEvaluation(evaluation, values);
  if (state_.next_iteration == 0) {
    state_.first_strict = evaluation.strict;
    state_.first_strict_error = evaluation.strict_error;
    state_.first_reward = evaluation.reward;
  }
  if (!evaluation.pictures.empty()) {
    record_.AddPictures(static_cast<int>(state_.next_iteration), evaluation);
    last_pictures_ = static_cast<int>(state_.next_iteration);
  }
}

// False: it was stopped; going on evaluates, and no more.
bool Coordinator::FinalEvaluation() {
  dispatch_.BeginIteration(state_.next_iteration);
  dispatch_.Add(
      EvaluationRequests(config_, resources_.eval.prompts, state_.next_iteration, config_.output.grid_images));
  const std::size_t total = resources_.eval.prompts.size() * static_cast<std::size_t>(config_.eval.seeds);
  const auto reason = [&] { return StopReason(last_record_seconds_); };
  dispatch_.ServeUntil([&] { return dispatch_.Done(RequestKind::kEvaluate) || !reason().empty(); },
                       [&] { progress_.Phase("evaluate", dispatch_.CountDone(RequestKind::kEvaluate), total); });
  if (!dispatch_.Done(RequestKind::kEvaluate)) {
    TellStopped("in the final evaluation", reason());
    dispatch_.Cancel(RequestKind::kEvaluate);
    return false;
  }
  const Evaluation evaluation =
      SummarizeEvaluation(dispatch_.Take(RequestKind::kEvaluate), resources_.reward->names(), resources_.eval.prompts);
  Values values;
  RecordEvaluation(evaluation, values);
  AddCost(dispatch_.ledger(), values);
  record_.AddFinal(static_cast<int>(state_.next_iteration), values);
  const std::string before = std::isnan(state_.first_strict)
                                 ? fmt::format("reward {:.3f}", state_.first_reward)
                                 : fmt::format("{:.3f} +- {:.3f}", state_.first_strict, state_.first_strict_error);
  const std::string score = fmt::format("Held-out score {} -> {} ({} images, standard error)", before,
                                        DescribeScore(evaluation), evaluation.images);
  ExportWeights(config_, *resources_.model.layout, dispatch_.PublishedWeights(EvaluationWeights()),
                record_.directory() + "/final", score);
  progress_.Line("");
  progress_.Line(score);
  for (const auto& [tag, strict] : evaluation.strict_by_tag) {
    progress_.Line(fmt::format("  {:<14} {:.3f}", tag, strict));
  }
  progress_.Line(fmt::format("Held-out reward {:.3f} -> {:.3f}", state_.first_reward, evaluation.reward));
  progress_.Line(dispatch_.ledger().Table());
  if (config_.explore.Overlaps() && step_seconds_ > 0) {
    const std::string since = first_iteration_ > 0 ? fmt::format(" since iteration {}", first_iteration_) : "";
    progress_.Line(
        fmt::format("waited for exploration {:.2f} % of the time{}", 100 * tail_seconds_ / step_seconds_, since));
  }
  progress_.Line(fmt::format("finished {} iterations in {}{}", config_.run.iterations, DescribeSeconds(Elapsed()),
                             CountWarnings() > 0 ? fmt::format(", {} warnings", CountWarnings()) : std::string()));
  progress_.Line(fmt::format("results: {0}/run.h5  {0}/final  {0}/samples", record_.directory()));
  return true;
}

void Coordinator::SaveCheckpoint() {
  const int step = static_cast<int>(state_.next_iteration);
  if (step == last_checkpoint_) return;
  const std::string folder = BeginCheckpoint(record_.directory(), step);
  dispatch_.StartSave(folder, static_cast<std::uint64_t>(step));
  dispatch_.ServeUntil([&] { return dispatch_.saved(); }, [] {});
  for (std::size_t pool = 0; pool < kPools; ++pool) {
    for (std::size_t use = 0; use < kUses; ++use) {
      state_.ledger_seconds[pool][use] = dispatch_.ledger().Seconds(static_cast<Pool>(pool), static_cast<Use>(use));
    }
  }
  state_.useful_steps = dispatch_.ledger().useful_steps();
  state_.all_steps = dispatch_.ledger().all_steps();
  state_.elapsed_seconds = Elapsed();
  exploration_.Save(state_);
  SaveRunState(state_, folder);
  CommitCheckpoint(record_.directory(), step, config_.checkpoint.keep, {kTrainerStateFile, kRunStateFile});
  last_checkpoint_ = step;
}

std::string Coordinator::StopReason(double needed_seconds) const {
  if (std::string signal = StopSignal(); !signal.empty()) return signal;
  const double limit = static_cast<double>(config_.run.TimeLimitSeconds());
  if (limit > 0 && Seconds(start_) + needed_seconds > limit) return "time limit";
  return "";
}

double Coordinator::Elapsed() const { return elapsed_before_ + Seconds(start_); }

}  // namespace spotlight
