#include "driver/study.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/dump.hpp"
#include "driver/computing.hpp"
#include "driver/resources.hpp"
#include "driver/seed_scorer.hpp"
#include "driver/signals.hpp"
#include "driver/study_file.hpp"
#include "driver/worker.hpp"
#include "io/atomic_file.hpp"
#include "io/checkpoint.hpp"
#include "io/provenance.hpp"
#include "model/model_weights.hpp"
#include "plan/arms.hpp"
#include "plan/prompt_sampler.hpp"
#include "record/progress.hpp"
#include "record/run_directory.hpp"
#include "record/run_state.hpp"
#include "rollout/schedule.hpp"

namespace spotlight {
namespace {

constexpr int kLags[] = {1, 2, 5, 10};  // versions

// How much older than the newest checkpoint's weights those are that a checkpoint is left of; 0 first.
std::vector<int> FindLags(const Restart& newest) {
  const std::vector<int> steps = ListCheckpoints(newest.directory);
  std::vector<int> lags = {0}, missing;
  for (const int lag : kLags) {
    const bool there = std::binary_search(steps.begin(), steps.end(), newest.step - lag);
    (there ? lags : missing).push_back(lag);
  }
  if (missing.empty()) return lags;
  const std::string remedy = fmt::format(
      "a run keeps them with checkpoint/every=1 checkpoint/keep=11, this one too if it goes on: -r {} "
      "run/iterations={} checkpoint/every=1 checkpoint/keep=11",
      newest.directory, newest.step + kLags[std::size(kLags) - 1]);
  if (lags.size() == 1) {
    throw UserError(
        fmt::format("study ranks: {} has weights of version {}, but no checkpoint of any {} versions older to compare "
                    "them with; {}",
                    newest.directory, newest.step, fmt::join(missing, ", "), remedy));
  }
  LogLine(fmt::format("left out for want of a checkpoint: weights {} versions older; {}", fmt::join(missing, ", "),
                      remedy));
  return lags;
}

void CheckStudy(const Config& config) {
  if (config.study.seeds >= config.group.images) return;
  throw UserError(fmt::format("study/seeds = {} is fewer than group/images = {}, which are chosen of them; take more",
                              config.study.seeds, config.group.images));
}

// What is compared with the first of them, in the order of their weights, the newest first.
std::vector<StudySetting> PlanSettings(const Config& config, const std::vector<int>& lags, std::uint32_t version) {
  std::vector<int> cached;
  for (const Arm& arm : ArmGrid(config.group.images, config.group.images, config.sampler.steps)) {
    if (arm.steps < config.sampler.steps) cached.push_back(arm.steps);
  }
  std::reverse(cached.begin(), cached.end());
  std::vector<StudySetting> settings;
  const auto add = [&](const std::string& name, int lag, int real_steps, int first_seed) {
    StudySetting setting{.name = name,
                         .lag = lag,
                         .weight_version = version - static_cast<std::uint32_t>(lag),
                         .real_steps = real_steps};
    for (int i = 0; i < config.study.seeds; ++i) {
      setting.seeds.push_back(SeedName(version, static_cast<std::uint32_t>(first_seed + i)));
    }
    settings.push_back(std::move(setting));
  };
  for (const int lag : lags) {
    const std::string name = lag == 0 ? "current" : fmt::format("{} older", lag);
    add(name, lag, config.sampler.steps, 0);
    if (lag == 0) add("other noise", lag, config.sampler.steps, config.study.seeds);
    for (const int real_steps : cached) {
      if (lag <= 1) add(name, lag, real_steps, 0);  // exploration's weights are one version old
    }
  }
  return settings;
}

std::string Cell(const std::vector<double>& values) {
  const MeanOverPrompts average = AverageOverPrompts(values);
  if (std::isnan(average.mean)) return "-";
  return fmt::format("{:.3f} [{:.2f}, {:.2f}]", average.mean, average.interval.low, average.interval.high);
}

void PrintRow(const std::string& weights, const std::string& steps, const std::string& spearman,
              const std::string& kendall, const std::string& overlap, const std::string& spread,
              const std::string& gained, const std::string& time) {
  LogLine(fmt::format("{:<12} {:>7}  {:<21} {:<21} {:<20} {:<20} {:>6} {:>5}", weights, steps, spearman, kendall,
                      overlap, spread, gained, time));
}

void PrintSetting(const RankStudy& study, const StudySetting& setting) {
  const StudySetting& reference = study.settings.front();
  const RankAgreement& agreement = setting.agreement;
  const double gained = SpreadGained(agreement.spread, study.random_spread, study.best_spread);
  PrintRow(setting.name, fmt::format("{}/{}", setting.real_steps, reference.real_steps), Cell(agreement.spearman),
           Cell(agreement.kendall), Cell(agreement.overlap), Cell(agreement.spread),
           std::isnan(gained) ? "-" : fmt::format("{:.0f} %", std::round(100 * gained) + 0.0),
           fmt::format("{:.2f}", setting.seconds / reference.seconds));
}

void PrintEnd(const RankStudy& study) {
  const std::string choice = fmt::format("{}/{}", study.kept, study.settings.front().seeds.size());
  PrintRow("random seeds", choice, "", "", "", Cell(study.random_spread), "0 %", "");
  PrintRow("best seeds", choice, "", "", "", Cell(study.best_spread), "100 %", "");
  const std::vector<double>& defined = study.settings.front().agreement.spearman;
  const auto alike = std::count_if(defined.begin(), defined.end(), [](double value) { return std::isnan(value); });
  if (alike > 0) {
    LogLine(fmt::format("correlations leave out prompts whose rewards are all alike: of the reference {} of {}", alike,
                        defined.size()));
  }
}

}  // namespace

int RunStudy(const CommandLine& command, const World& world) {
  if (world.size() > 1) throw UserError("spotlight study works in one process; start it without mpirun");
  InstallSignalHandlers();
  const Restart newest = *FindRestart(command, kRunStateFile);
  const RunState state = LoadRunState(newest.checkpoint());
  Config config = ResumedConfig(command, state.input, newest.directory);
  CheckStudy(config);
  for (const std::string& problem : newest.problems) LogWarning(problem);
  StartComputing(config, world);
  const Resources resources = LoadResources(config);
  RequireSameContents(state.contents, resources, config);
  const std::string path = newest.directory + "/study_ranks.h5";
  AtomicFile(path).Write("");  // hours of work must not end in a folder that cannot be written

  const auto start = std::chrono::steady_clock::now();
  SeedScorer scorer(config, resources, state.next_iteration);
  const std::vector<int> lags = FindLags(newest);
  for (const int lag : lags) VerifyCheckpoint(newest.directory, newest.step - lag);
  RankStudy study{.prompt_indices = scorer.prompts(),
                  .kept = config.group.images,
                  .settings = PlanSettings(config, lags, state.next_iteration)};
  for (const int prompt : scorer.prompts()) {
    study.prompts.push_back(resources.train.prompts[static_cast<std::size_t>(prompt)]);
  }
  LogLine(
      fmt::format("{}, weights of version {}: {} prompts x {} seeds in {} settings; overlap of the {} best and {} "
                  "worst, spread of {} chosen; means over prompts with 95 % intervals",
                  newest.directory, newest.step, config.study.prompts, config.study.seeds, study.settings.size(),
                  study.kept / 2, study.kept / 2, study.kept));
  PrintRow("weights", "steps", "Spearman", "Kendall tau-b", "overlap", "spread", "gained", "time");
  ModelWeights weights(resources.model.layout, resources.model.weights, MakePrecision(config.model),
                       NetworkSigmas(config, resources.model.scheduler));
  StudySetting& reference = study.settings.front();
  for (StudySetting& setting : study.settings) {
    const WeightKey key{setting.weight_version, false};
    if (!weights.Has(key)) {
      weights.Put(key, LoadOptimizerState(CheckpointPath(newest.directory, newest.step - setting.lag)).weights);
    }
    if (!scorer.Score(weights.Of(key), setting)) return kExitStopped;
    if (&setting == &reference) {
      study.random_spread = RandomSpread(reference.rewards, study.kept);
      study.best_spread = BestSpread(reference.rewards, study.kept);
    }
    setting.agreement = CompareRanks(reference.rewards, setting.rewards, study.kept, config.explore.select);
    PrintSetting(study, setting);
  }
  PrintEnd(study);
  std::map<std::string, std::string> attributes = Provenance();
  attributes["input"] = DumpConfig(config);
  WriteStudy(path, study, attributes);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  LogLine(fmt::format("{} after {}", path, DescribeSeconds(taken.count())));
  return kExitFinished;
}

}  // namespace spotlight
