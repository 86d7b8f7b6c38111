#include "driver/pretrain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "config/check.hpp"
#include "config/dump.hpp"
#include "config/input.hpp"
#include "driver/computing.hpp"
#include "driver/signals.hpp"
#include "driver/text_source.hpp"
#include "io/atomic_file.hpp"
#include "io/checkpoint.hpp"
#include "io/history_log.hpp"
#include "io/json_file.hpp"
#include "io/safetensors.hpp"
#include "io/state_file.hpp"
#include "kernels/runtime.hpp"
#include "model/linear_vae.hpp"
#include "model/weight_storage.hpp"
#include "plan/prompt_sampler.hpp"
#include "record/run_directory.hpp"
#include "reward/evaluation.hpp"
#include "reward/reward.hpp"
#include "reward/shape_world.hpp"
#include "rollout/sampler.hpp"
#include "train/flow_matching.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;
constexpr char kStateFile[] = "pretrain.h5";  // in the checkpoint's folder
constexpr std::uint64_t kImageStream = 0x696d616765ULL;

TransformerConfig PretrainedConfig(const PretrainConfig& pretrain, const LinearVae& vae) {
  TransformerConfig config;
  config.in_channels = static_cast<int>(4 * vae.channels());
  config.out_channels = static_cast<int>(vae.channels());
  config.num_layers = pretrain.num_layers;
  config.num_attention_heads = pretrain.num_heads;
  config.attention_head_dim = pretrain.head_dim;
  config.joint_attention_dim = pretrain.text_width;
  config.axes_dims_rope = {pretrain.rope_frame, pretrain.rope_height, pretrain.rope_width};
  return config;
}

// Everything the loop works on.
class Pretraining {
 public:
  Pretraining(const Config& config, std::string directory);

  void Restore(int step);
  int Run();

 private:
  std::vector<FlowExample> Batch(std::int64_t step) const;
  Evaluation Evaluate(const std::vector<float>& weights) const;
  void SaveCheckpoint();
  void Export(const Evaluation& evaluation) const;

  const Config& config_;
  std::string directory_;
  Vocabulary vocabulary_;
  LinearVae vae_;
  std::shared_ptr<const DitLayout> layout_;
  std::vector<Prompt> all_prompts_;
  PromptList eval_file_;
  PromptSampler sampler_;
  Reward reward_;
  FlowMatchingTrainer trainer_;
  std::int64_t step_ = 0;
};

std::vector<Prompt> AllPrompts(const Config& config) {
  std::vector<Prompt> prompts = ReadPrompts(config.prompts.train).prompts;
  for (Prompt& prompt : ReadPrompts(config.prompts.eval).prompts) {
    const bool known = std::any_of(prompts.begin(), prompts.end(), [&](const Prompt& p) { return p.id == prompt.id; });
    if (!known) prompts.push_back(std::move(prompt));
  }
  return prompts;
}

std::string AssetPath(const Config& config, const std::string& name) { return config.model.path + "/" + name; }

RewardConfig StrictAndSoft() {
  RewardConfig config;
  config.terms = {{"geneval_strict", 0.5}, {"geneval_soft", 0.5}};
  return config;
}

Pretraining::Pretraining(const Config& config, std::string directory)
    : config_(config),
      directory_(std::move(directory)),
      vocabulary_(ReadVocabulary(config.model.path)),
      vae_(ReadSafetensors(AssetPath(config, "linear_vae.safetensors")), AssetPath(config, "linear_vae.safetensors")),
      layout_(std::make_shared<const DitLayout>(PretrainedConfig(config.pretrain, vae_), LoraSettings{})),
      all_prompts_(AllPrompts(config)),
      eval_file_(ReadPrompts(config.prompts.eval)),
      sampler_(all_prompts_, config.prompts.tag_weights, config.run.seed),
      reward_(StrictAndSoft(), ShapeDetector(ReadSafetensors(AssetPath(config, "detector.safetensors")),
                                             AssetPath(config, "detector.safetensors"))),
      trainer_(config, layout_, static_cast<int>(vocabulary_.words.size())) {
  trainer_.SetState(trainer_.InitialState());
}

void Pretraining::Restore(int step) {
  const StateFile file = StateFile::Load(CheckpointPath(directory_, step) + "/" + kStateFile);
  trainer_.SetState({file.Floats("weights"), file.Floats("ema"), file.Floats("first_moment"),
                     file.Floats("second_moment"), file.Ints("step").at(0)});
  step_ = file.Ints("step").at(0);
}

std::vector<FlowExample> Pretraining::Batch(std::int64_t step) const {
  std::vector<FlowExample> batch;
  for (int b = 0; b < config_.pretrain.batch; ++b) {
    const std::uint64_t key = StreamKey({kImageStream, config_.run.seed, static_cast<std::uint64_t>(step)});
    const std::uint64_t image = UniformInt(key, static_cast<std::uint64_t>(b),
                                           static_cast<std::uint64_t>(std::max(1, config_.pretrain.images)));
    const int prompt = sampler_.Draw(static_cast<std::uint32_t>(image), 1).front();
    const Prompt& drawn = all_prompts_[static_cast<std::size_t>(prompt)];
    batch.push_back({vae_.Encode(RenderPrompt(drawn, StreamKey({kImageStream, config_.run.seed, image, 1}))),
                     vocabulary_.Tokenize(drawn.text)});
  }
  return batch;
}

Evaluation Pretraining::Evaluate(const std::vector<float>& weights) const {
  const std::span<const float> all(weights);
  const std::size_t transformer = static_cast<std::size_t>(layout_->base().size());
  Buffer base(static_cast<Index>(transformer));
  base.CopyFromHost(all.subspan(0, transformer));
  FlatParameters parameters(*layout_, base.data());
  ConditionedPrompts prompts{eval_file_.prompts, {}};
  const std::size_t width = static_cast<std::size_t>(config_.pretrain.text_width);
  for (const Prompt& prompt : prompts.prompts) {
    TextCondition condition;
    for (const int word : vocabulary_.Tokenize(prompt.text)) {
      const auto row = all.subspan(transformer + static_cast<std::size_t>(word) * width, width);
      condition.embedding.insert(condition.embedding.end(), row.begin(), row.end());
      ++condition.tokens;
    }
    prompts.conditions.push_back(std::move(condition));
  }
  Sampler sampler(config_, SchedulerConfig{}, layout_, {});
  std::vector<Sample> samples;
  const std::vector<Request> requests = EvaluationRequests(config_, prompts.prompts, 0, 0);
  const std::size_t batch = static_cast<std::size_t>(config_.sampler.batch);
  for (std::size_t from = 0; from < requests.size(); from += batch) {
    const std::vector<Request> part(requests.begin() + static_cast<Index>(from),
                                    requests.begin() + static_cast<Index>(std::min(requests.size(), from + batch)));
    const std::vector<Denoised> denoised = sampler.Denoise(parameters, part, prompts);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const ImageShape shape = sampler.image_shape();
      const RewardScore score = reward_.Score(prompts.prompts[part[i].prompt_index],
                                              vae_.Decode(denoised[i].latents, shape.height, shape.width));
      samples.push_back({.request = part[i], .reward = score.total, .terms = score.terms});
    }
  }
  return SummarizeEvaluation(samples, reward_.names(), prompts.prompts);
}

void Pretraining::SaveCheckpoint() {
  const std::string folder = BeginCheckpoint(directory_, static_cast<int>(step_));
  const FlowMatchingTrainer::State state = trainer_.GetState();
  StateFile file;
  file.Put("weights", std::span<const float>(state.weights));
  file.Put("ema", std::span<const float>(state.ema));
  file.Put("first_moment", std::span<const float>(state.first_moment));
  file.Put("second_moment", std::span<const float>(state.second_moment));
  file.Put("step", std::span<const std::int64_t>(&state.step, 1));
  file.Put("input", DumpConfig(config_));
  file.Save(folder + "/" + kStateFile);
  CommitCheckpoint(directory_, static_cast<int>(step_), config_.checkpoint.keep, {kStateFile});
}

void Pretraining::Export(const Evaluation& evaluation) const {
  const fs::path folder = fs::path(directory_) / "final";
  fs::create_directories(folder);
  const std::vector<float> ema = trainer_.GetState().ema;
  const std::size_t transformer = static_cast<std::size_t>(layout_->base().size());
  WriteSafetensors((folder / "diffusion_pytorch_model.safetensors").string(),
                   layout_->base().ToWeightMap(std::span<const float>(ema).subspan(0, transformer)),
                   {{"format", "pt"}});
  const Index width = config_.pretrain.text_width;
  WriteSafetensors((folder / "text_embedding.safetensors").string(),
                   {{"embed_tokens.weight",
                     {{static_cast<Index>(vocabulary_.words.size()), width},
                      {ema.begin() + static_cast<Index>(transformer), ema.end()}}}},
                   {{"format", "pt"}});
  WriteTransformerConfig((folder / "config.json").string(), layout_->config());
  for (const std::string name : {"vocabulary.json", "linear_vae.safetensors", "detector.safetensors"}) {
    fs::copy_file(AssetPath(config_, name), folder / name, fs::copy_options::overwrite_existing);
  }
  LogLine(
      fmt::format("held-out score {}; a model folder for model/path: {}", DescribeScore(evaluation), folder.string()));
}

int Pretraining::Run() {
  const PretrainConfig& pretrain = config_.pretrain;
  HistoryLog history(directory_ + "/history.jsonl");
  history.TruncateAfter(step_);
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t first = step_;
  double loss = 0;
  int losses = 0;
  Evaluation evaluation;
  while (step_ < pretrain.steps) {
    const ImageShape shape{1, config_.sampler.height / 16, config_.sampler.width / 16};
    const double step_loss = trainer_.Step(Batch(step_), shape);
    ++step_;
    if (!std::isfinite(step_loss) || !trainer_.finite()) {
      LogWarning(fmt::format(
          "step {}: training diverged, {} not finite; {}. Lower pretrain/lr or pretrain/matrix_lr", step_,
          std::isfinite(step_loss) ? "the weights are" : "the loss is",
          ListCheckpoints(directory_).empty() ? "there is no checkpoint yet" : "the last checkpoint is good"));
      return kExitStopped;
    }
    loss += step_loss;
    ++losses;
    const bool last = step_ == pretrain.steps;
    const bool evaluate = last || (pretrain.eval_every > 0 && step_ % pretrain.eval_every == 0);
    if (evaluate || step_ % 100 == 0) {
      std::map<std::string, double> values = {{"loss", loss / losses}};
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      std::string line = fmt::format("step {}/{} | loss {:.4f} | {:.0f} images/s", step_, pretrain.steps, loss / losses,
                                     static_cast<double>((step_ - first) * pretrain.batch) / seconds);
      if (evaluate) {
        evaluation = Evaluate(trainer_.GetState().ema);
        values["eval_strict"] = evaluation.strict;
        values["eval_soft"] = evaluation.soft;
        line += fmt::format(" | held-out {}", DescribeScore(evaluation));
      }
      LogLine(line);
      history.Append(step_, values);
      loss = 0;
      losses = 0;
    }
    const bool stop = !last && !StopSignal().empty();
    if (last || stop || (pretrain.checkpoint_every > 0 && step_ % pretrain.checkpoint_every == 0)) SaveCheckpoint();
    if (stop) {
      LogLine(fmt::format("stopped after step {}: {}. Go on with: pretrain -r latest -d {}", step_, StopSignal(),
                          directory_));
      return kExitStopped;
    }
  }
  if (evaluation.images == 0) evaluation = Evaluate(trainer_.GetState().ema);
  Export(evaluation);
  return kExitFinished;
}

}  // namespace

int RunPretrain(const CommandLine& command, World& world) {
  if (world.size() > 1) throw UserError("pretrain runs in one process: start it without mpirun");
  const std::optional<Restart> restart = FindRestart(command, kStateFile);
  Config config;
  if (restart) {
    const StateFile file = StateFile::Load(restart->checkpoint() + "/" + kStateFile);
    config = ResumedConfig(command, file.Text("input"), restart->directory);
  } else {
    config = ReadInput(command.input, command.overrides);
  }
  CheckPretrain(config);
  StartComputing(config, world);
  const std::string directory = restart ? restart->directory : RunDirectory(config, command.input);
  const RunLock lock = restart ? ReopenRunDirectory(*restart) : CreateRunDirectory(directory);
  OpenLog(directory + "/spotlight.log", true);
  WriteFileAtomically(directory + "/input.resolved.ini", DumpConfig(config));
  InstallSignalHandlers();
  LogLine("run directory " + directory);
  Pretraining pretraining(config, directory);
  if (restart) {
    for (const std::string& problem : restart->problems) LogWarning(problem);
    pretraining.Restore(restart->step);
    RemoveLaterCheckpoints(directory, restart->step);
    LogLine(fmt::format("resuming at step {}", restart->step));
  }
  return pretraining.Run();
}

int CheckPretrainJob(const CommandLine& command) {
  const Config config = ReadInput(command.input, command.overrides);
  CheckPretrain(config);
  StartKernels(1);
  const Pretraining pretraining(config, "");
  LogLine(fmt::format("{}: all settings are allowed, all files are there", command.input));
  return kExitFinished;
}

}  // namespace spotlight
