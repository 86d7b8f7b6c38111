#include "config/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.hpp"

namespace spotlight {
namespace {

// "train/updates (inputs/geneval.ini:31)": a key and where its value came from.
std::string Key(const Config& config, const std::string& name) {
  const auto source = config.sources.find(name);
  return fmt::format("{} ({})", name, source == config.sources.end() ? "default" : source->second);
}

void RequireGiven(const std::string& name, const std::string& value) {
  if (value.empty()) {
    throw UserError(fmt::format("{} is not given; add it to the input (spotlight --describe {} explains it)", name,
                                name.substr(0, name.find('/'))));
  }
}

void CheckWindow(const Config& config) {
  const SamplerConfig& sampler = config.sampler;
  if (sampler.window_first > sampler.window_last) {
    throw UserError(fmt::format("{} = {} is greater than {} = {}; the window starts between the two",
                                Key(config, "sampler/window_first"), sampler.window_first,
                                Key(config, "sampler/window_last"), sampler.window_last));
  }
  // The last step ends without noise: the deviation of the Flow- and Dance-SDE, and with it a probability, is that of
  // a step to sigma 0, which only CPS defines.
  const bool may_be_last = sampler.noise == SamplerConfig::Noise::kCps;
  const int usable = may_be_last ? sampler.steps : sampler.steps - 1;
  const int end = sampler.window_last + sampler.window_size;
  if (end > usable) {
    throw UserError(fmt::format(
        "{} = {} plus {} = {} makes the stochastic window end at step {}, but {} = {} leaves {} steps that may be "
        "stochastic{}; make the window smaller or earlier, or take more steps",
        Key(config, "sampler/window_last"), sampler.window_last, Key(config, "sampler/window_size"),
        sampler.window_size, end, Key(config, "sampler/steps"), sampler.steps, usable,
        may_be_last ? "" : " (all but the last, which has no noise; sampler/noise = cps may use that one too)"));
  }
}

// CPS' angle is noise_level times 90 degrees.
void CheckNoise(const Config& config) {
  const SamplerConfig& sampler = config.sampler;
  if (sampler.noise != SamplerConfig::Noise::kCps || sampler.noise_level <= 1) return;
  throw UserError(fmt::format(
      "{} = {} is too much for {} = cps, which takes 0 < noise_level <= 1: at 1 all of the predicted noise is fresh",
      Key(config, "sampler/noise_level"), sampler.noise_level, Key(config, "sampler/noise")));
}

void CheckSchedule(const Config& config, const std::string& name, int steps) {
  if (config.sampler.schedule == SamplerConfig::Schedule::kQwen && steps < 2) {
    throw UserError(fmt::format(
        "{} = {} is too few for {} = qwen, which stretches the steps between the first and the last; take 2 or more",
        Key(config, name), steps, Key(config, "sampler/schedule")));
  }
}

void CheckBatches(const Config& config) {
  const std::int64_t samples = std::int64_t{config.group.prompts} * config.group.images;
  const std::int64_t pairs = samples * config.sampler.window_size;
  const int groups = std::max(1, config.ranks.trainers / config.ranks.trainer_sp);  // that share a pass
  const std::int64_t parts = std::int64_t{config.train.updates} * groups;
  if (parts > pairs) {
    throw UserError(fmt::format(
        "{} = {} times {} groups of {} = {} trainers asks for {} parts of an iteration, but {} = {} x {} = {} x {} = "
        "{} gives only {} (sample, step) pairs; take fewer updates or more images",
        Key(config, "train/updates"), config.train.updates, groups, Key(config, "ranks/trainer_sp"),
        config.ranks.trainer_sp, parts, Key(config, "group/prompts"), config.group.prompts, Key(config, "group/images"),
        config.group.images, Key(config, "sampler/window_size"), config.sampler.window_size, pairs));
  }
}

void CheckExploration(const Config& config) {
  const ExploreConfig& explore = config.explore;
  if (explore.seeds == 0) return;
  if (explore.seeds < config.group.images) {
    throw UserError(fmt::format(
        "{} = {} is fewer than {} = {}: the images of a group are chosen from the seeds explored; take at least {} "
        "seeds, or 0 for no exploration",
        Key(config, "explore/seeds"), explore.seeds, Key(config, "group/images"), config.group.images,
        config.group.images));
  }
  if (explore.steps > config.sampler.steps) {
    throw UserError(fmt::format("{} = {} of {} = {} steps; take fewer, or 0 for all", Key(config, "explore/steps"),
                                explore.steps, Key(config, "sampler/steps"), config.sampler.steps));
  }
  const bool cached = explore.steps > 0 && explore.steps < config.sampler.steps;
  const bool decided = explore.cache != ExploreConfig::Cache::kSteps;
  if (cached && decided) {
    throw UserError(fmt::format("{} = {} fixes how many steps are computed, but {} decides it step by step; give one",
                                Key(config, "explore/steps"), explore.steps, Key(config, "explore/cache")));
  }
  if (explore.when == ExploreConfig::When::kCritical && (cached || decided)) {
    throw UserError(
        fmt::format("{} = critical trains on what it explored, so every step must be computed; leave out "
                    "{}",
                    Key(config, "explore/when"), Key(config, cached ? "explore/steps" : "explore/cache")));
  }
  // The default says nothing: the input of a checkpoint names it, too.
  if (explore.budget == ExploreConfig::Budget::kFixed && explore.planner != ExploreConfig{}.planner &&
      explore.planner != ExploreConfig::Planner::kFixed) {
    throw UserError(fmt::format("{} = fixed leaves nothing to plan; leave out {}, or take budget = deadline",
                                Key(config, "explore/budget"), Key(config, "explore/planner")));
  }
}

void CheckSharing(const Config& config) {
  const RanksConfig& ranks = config.ranks;
  if (ranks.trainers % ranks.trainer_sp != 0) {
    throw UserError(fmt::format("{} = {} must divide {} = {}: trainers share passes in groups of that size",
                                Key(config, "ranks/trainer_sp"), ranks.trainer_sp, Key(config, "ranks/trainers"),
                                ranks.trainers));
  }
  if (config.lora.rank > 0) {
    if (!config.train.shard_weights) return;
    throw UserError(fmt::format(
        "{} = true is for training all weights, but {} = {} trains an adapter over a base that does not change; "
        "leave it out",
        Key(config, "train/shard_weights"), Key(config, "lora/rank"), config.lora.rank));
  }
  if (!config.model.adapter.empty()) {
    throw UserError(fmt::format("{} = {} is to be trained on, but {} = 0 trains all weights; set lora/rank to its rank",
                                Key(config, "model/adapter"), config.model.adapter, Key(config, "lora/rank")));
  }
}

void CheckHost(const Config& config) {
  // It becomes a part of tcp://HOST:PORT.
  if (config.ranks.host.find_first_of(" \t:/[]*") != std::string::npos) {
    throw UserError(
        fmt::format("{} = '{}' is no name or IPv4 address of a machine, like node7 or 10.0.0.7; the port is "
                    "ranks/port",
                    Key(config, "ranks/host"), config.ranks.host));
  }
}

void CheckReward(const Config& config) {
  double total = 0;
  for (const WeightedName& term : config.reward.terms) total += std::abs(term.weight);
  if (total == 0) {
    throw UserError(
        fmt::format("{} has no term with a weight other than 0, so that nothing could be learnt; "
                    "write name:weight (spotlight --list rewards names them)",
                    Key(config, "reward/terms")));
  }
}

}  // namespace

void CheckConfig(const Config& config) {
  RequireGiven("model/path", config.model.path);
  RequireGiven("prompts/train", config.prompts.train);
  RequireGiven("prompts/eval", config.prompts.eval);
  if (config.lora.rank > 0 && config.lora.targets.empty()) {
    throw UserError(fmt::format("{} = {} asks for adapters, but {} is an empty list; name a layer, or set rank = 0",
                                Key(config, "lora/rank"), config.lora.rank, Key(config, "lora/targets")));
  }
  CheckSchedule(config, "sampler/steps", config.sampler.steps);
  CheckSchedule(config, "eval/steps", config.eval.steps);
  CheckWindow(config);
  CheckNoise(config);
  CheckBatches(config);
  CheckExploration(config);
  CheckSharing(config);
  CheckHost(config);
  CheckReward(config);
}

void CheckSample(const Config& config, bool prompts_given) {
  RequireGiven("model/path", config.model.path);
  if (!prompts_given && config.prompts.eval.empty()) {
    throw UserError("no prompts: give --prompt TEXT, as often as you like, or prompts/eval in the input");
  }
  CheckSchedule(config, "eval/steps", config.eval.steps);
}

void CheckPretrain(const Config& config) {
  const PretrainConfig& pretrain = config.pretrain;
  const int sum = pretrain.rope_frame + pretrain.rope_height + pretrain.rope_width;
  if (sum != pretrain.head_dim) {
    throw UserError(
        fmt::format("pretrain/rope_frame + rope_height + rope_width = {} + {} + {} = {} must be {} = {}: "
                    "every channel of a head rotates with one of the three",
                    pretrain.rope_frame, pretrain.rope_height, pretrain.rope_width, sum,
                    Key(config, "pretrain/head_dim"), pretrain.head_dim));
  }
}

void CheckRanks(const Config& config, int ranks) {
  const int trainers = config.ranks.trainers;
  const int needed = trainers + 1;
  const bool one_takes_all = ranks == 1 && trainers == 1;
  if (!one_takes_all && ranks < needed) {
    throw UserError(fmt::format(
        "{} = {} needs {} ranks (1 coordinator + {} trainers; further ones are spot ranks), "
        "but {} were started; start mpirun -np {} or more, or set ranks/trainers={}",
        Key(config, "ranks/trainers"), trainers, needed, trainers, ranks, needed, ranks > 1 ? ranks - 1 : 1));
  }
  if (ranks > 1 && config.ranks.parked > ranks - needed) {
    throw UserError(
        fmt::format("{} = {} of {} spot ranks (all {} but 1 coordinator and {} trainers); start {} more, or lower it",
                    Key(config, "ranks/parked"), config.ranks.parked, ranks - needed, ranks, trainers,
                    config.ranks.parked - (ranks - needed)));
  }
}

}  // namespace spotlight
