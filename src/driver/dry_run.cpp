#include "driver/dry_run.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/check.hpp"
#include "config/input.hpp"
#include "driver/resources.hpp"
#include "kernels/runtime.hpp"
#include "model/model_weights.hpp"
#include "record/progress.hpp"
#include "rollout/sampler.hpp"
#include "train/trainer.hpp"

namespace spotlight {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Measured: code, libraries and their tables of a run without batches; what allocator and matrix kernels add to the
// activations.
constexpr double kProgramBytes = 20 * kMiB;
constexpr double kMpiBytes = 15 * kMiB;
constexpr double kScratch = 1.45;

// Floats that one sample's block keeps for the backward pass: see model/dit_activations.hpp.
double KeptPerBlock(double image_tokens, double text_tokens, double d) {
  // input, middle, normed x2, qkv x3, attention, attention_out, mlp_out, mlp hidden and act x4 each, q/k/v x3
  return (image_tokens + text_tokens) * d * (2 + 2 + 3 + 1 + 1 + 1 + 8 + 3);
}

// Floats that one sample needs in a pass without a backward.
double ForwardOnly(double image_tokens, double text_tokens, double d) {
  return KeptPerBlock(image_tokens, text_tokens, d) - 2 * (image_tokens + text_tokens) * d;
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double ResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0;
}

}  // namespace

int ThreadsPerRank(const Config& config, const World& world) {
  if (config.device.threads > 0) return config.device.threads;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  return std::max(1, cores / world.local_ranks());
}

MemoryEstimate EstimateMemory(const Config& config, const DitLayout& layout, Index text_tokens, Role role) {
  const TransformerConfig& model = layout.config();
  const bool lora = layout.lora().rank > 0;
  const double base = 4.0 * static_cast<double>(layout.base().size());
  const double trained = lora ? 4.0 * static_cast<double>(layout.adapter().size()) : base;
  const double d = model.width(), image = config.sampler.height / 16.0 * (config.sampler.width / 16.0);
  const double text = static_cast<double>(text_tokens), latent = image * model.in_channels;
  const double passes = config.sampler.guidance > 1 ? 2 : 1;
  const bool trains = role == Role::kTrainer || role == Role::kAll;
  const bool coordinates = role == Role::kCoordinator || role == Role::kAll;
  MemoryEstimate memory;
  memory.program = kProgramBytes + (role == Role::kAll ? 0 : kMpiBytes);
  if (role != Role::kCoordinator) {
    memory.weights = 2 * base + 2 * trained;  // as read and as kernel memory; two versions
    const double rollout = config.sampler.batch * passes * ForwardOnly(image, text, d) * 4 +
                           config.sampler.batch * (config.sampler.window_size + 5) * latent * 4;
    memory.activations = rollout;
    // Fetched weights: received, decoded, checked.
    if (role == Role::kExplorer) memory.control = 3 * trained;
    if (trains) {
      const double blocks = config.model.recompute ? 1 : model.num_layers;
      const double inputs = config.model.recompute ? model.num_layers * (image + text) * d : 0;
      const double scratch = (image + text) * d * 13;
      memory.activations +=
          config.train.micro_batch * passes * (blocks * KeptPerBlock(image, text, d) + inputs + scratch) * 4 +
          config.train.micro_batch * 5 * latent * 4;
      if (config.train.kl_beta > 0) {
        memory.activations += config.train.micro_batch * passes * ForwardOnly(image, text, d) * 4;
      }
      // Weights, moments, average and gradient; a checkpoint copies all but the gradient twice.
      const double arrays = config.train.ema_decay > 0 ? 4 : 3;
      memory.optimizer = trained * (arrays + 1 + 2 * arrays);
    }
    memory.activations *= kScratch;
  }
  if (coordinates) {
    const double samples = static_cast<double>(config.group.prompts) * config.group.images;
    const double published = trained * (config.train.ema_decay > 0 ? 4 : 2);
    // The trainer's result is received, decoded and published.
    const double messages = role == Role::kCoordinator ? base + 5 * trained : 0;
    memory.control = published + messages + 3 * samples * (config.sampler.window_size + 1) * latent * 4;
  }
  return memory;
}

int DryRun(const CommandLine& command, const World& world) {
  const Config config = ReadInput(command.input, command.overrides);
  CheckConfig(config);
  StartKernels(ThreadsPerRank(config, world));
  const Resources resources = LoadResources(config);
  if (world.rank() != 0) return kExitFinished;
  const DitLayout& layout = *resources.layout;
  const int images = config.group.prompts * config.group.images;
  const int pairs = images * config.sampler.window_size;
  const int explored = config.explore.seeds * config.group.prompts;
  const int evaluated = static_cast<int>(resources.eval.prompts.size()) * config.eval.seeds;
  LogLine(fmt::format("{}: one iteration, whatever the number of ranks", command.input));
  LogLine(fmt::format("  rollout      {} prompts x {} images = {} images of {} steps", config.group.prompts,
                      config.group.images, images, config.sampler.steps));
  LogLine(fmt::format("  explore      {} prompts x {} seeds = {} images, for the next iteration", config.group.prompts,
                      config.explore.seeds, explored));
  LogLine(fmt::format(
      "  train        {} images x {} window steps = {} pairs; {} updates of {} pairs in micro-batches of {}", images,
      config.sampler.window_size, pairs, config.train.updates, pairs / config.train.updates, config.train.micro_batch));
  LogLine(fmt::format("  evaluate     {} prompts x {} seeds = {} images every {} iterations",
                      resources.eval.prompts.size(), config.eval.seeds, evaluated, config.eval.every));

  Index text_tokens = 0;
  for (const TextCondition& condition : resources.train.conditions) {
    text_tokens = std::max(text_tokens, condition.tokens);
  }
  LogLine("memory of a rank, MiB: weights + optimizer + activations + control + program = total");
  for (const Role role : {Role::kCoordinator, Role::kTrainer, Role::kExplorer, Role::kAll}) {
    const MemoryEstimate memory = EstimateMemory(config, layout, text_tokens, role);
    LogLine(fmt::format("  {:<12} {:.1f} + {:.1f} + {:.1f} + {:.1f} + {:.1f} = {:.1f}", RoleName(role),
                        memory.weights / kMiB, memory.optimizer / kMiB, memory.activations / kMiB,
                        memory.control / kMiB, memory.program / kMiB, memory.total() / kMiB));
  }

  // One batch of each kind, measured here.
  ModelWeights weights(resources.layout, resources.base_weights);
  const std::vector<float> trained = InitialTrainedWeights(layout, resources.base_weights, config.run.seed);
  weights.Put({0, false}, trained);
  Sampler sampler(config, resources.scheduler, resources.layout, resources.negative);
  std::vector<Request> batch(static_cast<std::size_t>(std::min(config.sampler.batch, images)));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].seed = i;
    batch[i].window_end = static_cast<std::uint32_t>(config.sampler.window_size);
  }
  sampler.Denoise(weights.Memory({0, false}), batch, resources.train);
  auto start = std::chrono::steady_clock::now();
  std::vector<Denoised> denoised = sampler.Denoise(weights.Memory({0, false}), batch, resources.train);
  const double image_seconds = SecondsSince(start) / static_cast<double>(batch.size());
  World alone;
  alone.AssignRoles(1);
  TrainerGroup group(alone);
  Trainer trainer(config, resources.layout, weights, resources.negative, group);
  trainer.SetState(Trainer::InitialState(config, trained));
  std::vector<TrainSample> samples;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Sample sample{.request = batch[i]};
    sample.latents = std::move(denoised[i].trajectory);
    sample.log_probs = std::move(denoised[i].log_probs);
    sample.steps = std::move(denoised[i].steps);
    samples.push_back({std::move(sample), i % 2 == 0 ? 1.0 : -1.0});
  }
  trainer.Train(0, samples, resources.train.conditions);  // warms up: buffers, the matrix library's kernels
  start = std::chrono::steady_clock::now();
  trainer.Train(1, samples, resources.train.conditions);
  const double pair_seconds = SecondsSince(start) / static_cast<double>(batch.size()) / config.sampler.window_size;

  const double evaluations = config.eval.every > 0 ? 1.0 / config.eval.every : 0;
  const double rollout_work = images * image_seconds, train_work = pairs * pair_seconds;
  const double explore_work = explored * image_seconds;
  const double evaluate_work = evaluated * evaluations * image_seconds * config.eval.steps / config.sampler.steps;
  const double all_work = rollout_work + train_work + explore_work + evaluate_work;
  LogLine(fmt::format("measured here, {:.2f} ms an image, {:.2f} ms a trained pair", 1e3 * image_seconds,
                      1e3 * pair_seconds));
  LogLine(fmt::format(
      "one iteration: rollout {:.2f} s + train {:.2f} s + explore {:.2f} s + evaluate {:.2f} s of one rank's work",
      rollout_work, train_work, explore_work, evaluate_work));
  LogLine(fmt::format("{} iterations in one process: {}, cost {:.4f} {} at {} an hour", config.run.iterations,
                      DescribeSeconds(all_work * config.run.iterations),
                      all_work * config.run.iterations / 3600 * config.cost.reserved_per_hour, config.cost.currency,
                      config.cost.reserved_per_hour));
  for (const int explorers : {2, 8}) {
    const double workers = config.ranks.trainers + explorers;
    const double wall = (rollout_work + evaluate_work) / workers +
                        std::max(train_work / config.ranks.trainers, explore_work / explorers);
    const double cost =
        wall * (config.ranks.trainers * config.cost.reserved_per_hour + explorers * config.cost.spot_per_hour);
    LogLine(fmt::format("with {} trainer(s) and {} spot ranks on cores of their own: {}, cost {:.4f} {}",
                        config.ranks.trainers, explorers, DescribeSeconds(wall * config.run.iterations),
                        cost * config.run.iterations / 3600, config.cost.currency));
  }
  LogLine(fmt::format("peak memory of this dry run: {:.1f} MiB", ResidentBytes() / kMiB));
  return kExitFinished;
}

}  // namespace spotlight
