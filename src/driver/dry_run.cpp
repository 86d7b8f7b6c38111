#include "driver/dry_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/check.hpp"
#include "config/input.hpp"
#include "driver/computing.hpp"
#include "driver/memory_advice.hpp"
#include "driver/memory_estimate.hpp"
#include "driver/resources.hpp"
#include "model/model_weights.hpp"
#include "record/progress.hpp"
#include "rollout/sampler.hpp"
#include "rollout/schedule.hpp"
#include "train/trainer.hpp"

namespace spotlight {
namespace {

constexpr double kMiB = 1024.0 * 1024.0, kGiB = 1024.0 * kMiB;

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double ResidentBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0;
}

void PrintIteration(const CommandLine& command, const Config& config, const Resources& resources) {
  const int images = config.group.prompts * config.group.images;
  const int pairs = images * config.sampler.window_size;
  LogLine(fmt::format("{}: one iteration, whatever the number of ranks", command.input));
  LogLine(fmt::format("  rollout      {} prompts x {} images = {} images of {} steps", config.group.prompts,
                      config.group.images, images, config.sampler.steps));
  const ExploreConfig& explore = config.explore;
  LogLine(fmt::format("  explore      {} prompts x {} seeds = {} images, {}", config.group.prompts, explore.seeds,
                      explore.seeds * config.group.prompts,
                      explore.when == ExploreConfig::When::kCritical ? "of which the kept ones are the rollouts"
                      : explore.Awaited()                            ? "for the next iteration"
                                          : "for the next iteration, or as many as fit beside training"));
  LogLine(fmt::format(
      "  train        {} images x {} window steps = {} pairs; {} updates of {} pairs in micro-batches of {}", images,
      config.sampler.window_size, pairs, config.train.updates, pairs / config.train.updates, config.train.micro_batch));
  LogLine(fmt::format("  evaluate     {} prompts x {} seeds = {} images every {} iterations",
                      resources.eval.prompts.size(), config.eval.seeds,
                      resources.eval.prompts.size() * static_cast<std::size_t>(config.eval.seeds), config.eval.every));
}

// What memory and work depend on beside the input.
struct PassSizes {
  Index text_tokens = 0;  // of the longest prompt
  bool assumed = false;   // the embeddings are still to be made: a long one of GenEval's or OCR prompts
  Index sigmas = 0;       // different ones that the network sees
};
PassSizes SizesOf(const Config& config, const Resources& resources) {
  const std::vector<float> sigmas = NetworkSigmas(config, resources.model.scheduler);
  PassSizes sizes{.sigmas = static_cast<Index>(std::set<float>(sigmas.begin(), sigmas.end()).size())};
  if (resources.text == nullptr) {
    sizes.text_tokens = 64;
    sizes.assumed = true;
    return sizes;
  }
  const auto see = [&](const std::string& text) {
    sizes.text_tokens = std::max(sizes.text_tokens, resources.text->Embed(text).tokens);
  };
  if (config.sampler.guidance > 1) see(config.sampler.negative_prompt);
  for (const PromptList* list : {&resources.train, &resources.eval}) {
    for (const Prompt& prompt : list->prompts) see(prompt.text);
  }
  return sizes;
}

// Each kind of device: whether a rank of `role` fits on it, or what has to be changed.
void PrintFit(const Config& config, const DitLayout& layout, const PassSizes& sizes, Role role) {
  const MemoryEstimate memory = EstimateMemory(config, layout, sizes.text_tokens, sizes.sigmas, role);
  LogLine(fmt::format("  {:<12} {:.1f} GiB on the device, {:.1f} GiB in the host's memory", RoleName(role),
                      memory.device() / kGiB, memory.beside_device() / kGiB));
  for (const DeviceKind& kind : kDeviceKinds) {
    std::string verdict = fmt::format("fits, {:.1f} GiB to spare", (kind.bytes - memory.device()) / kGiB);
    if (memory.device() > kind.bytes) {
      const auto changes = ChangesToFit(config, layout, sizes.text_tokens, sizes.sigmas, role, kind.bytes);
      verdict = changes ? fmt::format("does not fit; it does with {}", fmt::join(*changes, " "))
                        : "does not fit, whatever the batches and the number of ranks";
    }
    LogLine(fmt::format("    {} ({:.1f} GiB): {}", kind.name, kind.bytes / kGiB, verdict));
  }
}

void PrintMemory(const Config& config, const DitLayout& layout, const PassSizes& sizes) {
  LogLine("memory of a rank, MiB: weights + optimizer + activations + control + program = total");
  for (const Role role : {Role::kCoordinator, Role::kTrainer, Role::kExplorer, Role::kAll}) {
    const MemoryEstimate memory = EstimateMemory(config, layout, sizes.text_tokens, sizes.sigmas, role);
    LogLine(fmt::format("  {:<12} {:>8.1f} + {:>8.1f} + {:>8.1f} + {:>8.1f} + {:>5.1f} = {:.1f}", RoleName(role),
                        memory.weights / kMiB, memory.optimizer / kMiB, memory.activations / kMiB,
                        memory.control / kMiB, memory.program / kMiB, memory.total() / kMiB));
  }
  const char* precision = config.model.precision == ModelConfig::Precision::kBf16 ? "bf16" : "fp32";
  const double parameters = static_cast<double>(layout.base().size());
  if (layout.lora().rank > 0) {
    const MemoryEstimate memory = EstimateMemory(config, layout, sizes.text_tokens, sizes.sigmas, Role::kExplorer);
    const Index replaced = layout.base().size() - layout.parts()[static_cast<std::size_t>(layout.time_part())].offset;
    LogLine(fmt::format("trained: an adapter of {:.2f} M parameters over a base of {:.2f} M in {}, {:.2f} GiB",
                        static_cast<double>(layout.adapter().size()) / 1e6,
                        (parameters - static_cast<double>(replaced)) / 1e6, precision, memory.base / kGiB));
    LogLine(fmt::format("a table of the modulation at {} sigmas, {:.2f} GiB, stands for the other {:.2f} M",
                        sizes.sigmas, memory.table / kGiB, static_cast<double>(replaced) / 1e6));
  } else {
    LogLine(fmt::format("trained: all {:.2f} M parameters; passes read them in {}", parameters / 1e6, precision));
  }
}

// config: with the activations that a GPU would have.
void PrintDevices(const Config& config, const DitLayout& layout, const PassSizes& sizes) {
  LogLine(fmt::format(
      "a rank with a device keeps weights, optimizer state, what it exchanges and activations ({}) there; texts of {} "
      "tokens{}:",
      config.model.ActivationType() == ElementType::kBf16 ? "bf16" : "fp32", sizes.text_tokens,
      sizes.assumed ? " are assumed" : ""));
  for (const Role role : {Role::kTrainer, Role::kExplorer}) PrintFit(config, layout, sizes, role);
}

// Seconds of one image and of one trained pair, measured with a batch each.
struct Times {
  double image = 0, pair = 0;
};
Times Measure(const Config& config, const Resources& resources) {
  const std::shared_ptr<const DitLayout>& layout = resources.model.layout;
  const bool lora = config.lora.rank > 0;
  ModelWeights weights(layout, resources.model.weights, MakePrecision(config.model),
                       lora ? NetworkSigmas(config, resources.model.scheduler) : std::vector<float>());
  std::vector<float> trained;
  if (lora) {
    trained = InitialAdapter(*layout, config.run.seed);
  } else {
    trained.resize(static_cast<std::size_t>(layout->base().size()));
    layout->base().Load(*resources.model.weights, trained);
  }
  weights.Put({0, false}, trained);
  const int images = config.group.prompts * config.group.images;
  std::vector<Request> batch(static_cast<std::size_t>(std::min(config.sampler.batch, images)));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].seed = i;
    batch[i].window_end = static_cast<std::uint32_t>(config.sampler.window_size);
  }
  Sampler sampler(config, resources.model.scheduler, layout, {});
  ConditionedPrompts prompts = WithoutConditions(resources.train);
  prompts.conditions[0] = resources.text->Embed(prompts.prompts[0].text);
  TextCondition negative;
  if (config.sampler.guidance > 1) negative = resources.text->Embed(config.sampler.negative_prompt);
  sampler.SetNegative(negative);
  Parameters& parameters = weights.Of({0, false});
  sampler.Denoise(parameters, batch, prompts);  // warms up: buffers, the matrix library's kernels
  auto start = std::chrono::steady_clock::now();
  std::vector<Denoised> denoised = sampler.Denoise(parameters, batch, prompts);
  Times times;
  times.image = SecondsSince(start) / static_cast<double>(batch.size());
  World alone{World::Alone{}};
  alone.AssignRoles(1);
  TrainerGroup group(alone);
  Trainer trainer(config, layout, weights, group);
  trainer.SetNegative(negative);
  trainer.trained().SetState(TrainedWeights::InitialState(config, trained));
  std::vector<TrainSample> samples;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Sample sample{.request = batch[i]};
    sample.latents = std::move(denoised[i].trajectory);
    sample.log_probs = std::move(denoised[i].log_probs);
    sample.steps = std::move(denoised[i].steps);
    samples.push_back({std::move(sample), i % 2 == 0 ? 1.0 : -1.0});
  }
  trainer.Train(0, samples, prompts.conditions);
  start = std::chrono::steady_clock::now();
  trainer.Train(1, samples, prompts.conditions);
  times.pair = SecondsSince(start) / static_cast<double>(batch.size()) / config.sampler.window_size;
  return times;
}

void PrintTimes(const Config& config, const Resources& resources, const Times& times) {
  const int images = config.group.prompts * config.group.images;
  const double evaluations = config.eval.every > 0 ? 1.0 / config.eval.every : 0;
  const double evaluated = static_cast<double>(resources.eval.prompts.size()) * config.eval.seeds;
  const bool critical = config.explore.when == ExploreConfig::When::kCritical && config.explore.seeds > 0;
  const int rolled_out = critical ? config.group.prompts * config.explore.seeds : images;
  const double rollout_work = rolled_out * times.image, train_work = images * config.sampler.window_size * times.pair;
  // What must be done whole; what only fills the time of training costs none.
  const double explore_work = config.explore.Overlaps() && config.explore.Awaited()
                                  ? config.explore.seeds * config.group.prompts * times.image
                                  : 0;
  const double evaluate_work = evaluated * evaluations * times.image * config.eval.steps / config.sampler.steps;
  const double all_work = rollout_work + train_work + explore_work + evaluate_work;
  LogLine(
      fmt::format("measured here, {:.2f} ms an image, {:.2f} ms a trained pair", 1e3 * times.image, 1e3 * times.pair));
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
}

}  // namespace

int DryRun(const CommandLine& command, const World& world) {
  Config config = ReadInput(command.input, command.overrides);
  CheckConfig(config);
  Config on_device = config;
  if (on_device.model.activations == ModelConfig::Activations::kAuto) {
    on_device.model.activations = ModelConfig::Activations::kBf16;
  }
  StartComputing(config, world);
  const Resources resources = LoadResources(config, ResourceUse::kPlan);
  if (world.rank() != 0) return kExitFinished;
  const DitLayout& layout = *resources.model.layout;
  PrintIteration(command, config, resources);
  const PassSizes sizes = SizesOf(config, resources);
  PrintMemory(config, layout, sizes);
  PrintDevices(on_device, layout, sizes);
  const double image_tokens = config.sampler.height / 16.0 * (config.sampler.width / 16.0);
  const double branches = config.sampler.guidance > 1 ? 2 : 1;
  const double image_flops = config.sampler.steps * branches *
                             ForwardFlops(layout.config(), image_tokens, static_cast<double>(sizes.text_tokens));
  LogLine(fmt::format("an image is {:.4g} TFLOP in {} passes", image_flops / 1e12,
                      static_cast<int>(config.sampler.steps * branches)));
  for (const std::string& note : resources.notes) LogLine(note);
  constexpr double kMeasurable = 1e11;  // flops of an image: a second of one core
  if (resources.model.weights == nullptr || resources.text == nullptr || image_flops > kMeasurable) {
    LogLine(
        "time and cost were not measured: they take the weights and embeddings, and a model that this machine "
        "denoises in seconds");
    return kExitFinished;
  }
  PrintTimes(config, resources, Measure(config, resources));
  return kExitFinished;
}

}  // namespace spotlight
