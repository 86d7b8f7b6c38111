#include "driver/sample.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/mpi_settings.hpp"
#include "comm/sp_group.hpp"
#include "comm/sp_plan.hpp"
#include "config/check.hpp"
#include "config/input.hpp"
#include "driver/computing.hpp"
#include "driver/model_files.hpp"
#include "driver/resources.hpp"
#include "driver/signals.hpp"
#include "io/image_file.hpp"
#include "model/model_weights.hpp"
#include "record/progress.hpp"
#include "record/run_directory.hpp"
#include "reward/evaluation.hpp"
#include "rollout/sampler.hpp"
#include "rollout/schedule.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

PromptList SamplePrompts(const CommandLine& command, const Config& config) {
  if (command.prompts.empty()) return ReadPrompts(config.prompts.eval);
  PromptList list{{}, "--prompt", "", 0, 0};
  std::set<std::string> seen;
  int place = 0;
  for (const std::string& text : command.prompts) {
    ++place;
    if (seen.insert(text).second) list.prompts.push_back({.id = PromptId(text), .text = text, .line = place});
  }
  return list;
}

// The adapter's values, and the settings of a layout that has its places.
struct Adapter {
  LoraSettings settings;
  LoraFile file;
};
Adapter ReadAdapter(const std::string& path) {
  if (path.empty()) return {};
  LoraFile file = ReadLora(path);
  for (const std::string& note : file.notes) LogWarning(note);
  return {{file.rank, static_cast<double>(file.rank), file.targets}, std::move(file)};
}

std::string FileName(const Request& request) {
  return fmt::format("{:05}_{:02}.png", request.prompt_index, request.seed);
}

// One group's part of the work: the images `own` of all requests.
class Sampling {
 public:
  Sampling(const Config& config, const ModelFiles& model, Parameters& parameters, ConditionedPrompts prompts,
           TextCondition negative, SequenceGroup* group)
      : config_(config),
        model_(model),
        parameters_(parameters),
        prompts_(std::move(prompts)),
        group_(group),
        sampler_(config, model.scheduler, model.layout, std::move(negative)) {}

  // Writes the batch's images into `folder`.
  void Run(const std::vector<Request>& batch, const std::string& folder) {
    const std::vector<Denoised> denoised = sampler_.Denoise(parameters_, batch, prompts_, group_);
    const ImageShape shape = sampler_.image_shape();
    for (std::size_t i = 0; i < batch.size(); ++i) {
      // The ranks of a group share out the decoding as well.
      if (group_ != nullptr && static_cast<int>(i) % group_->size() != group_->index()) continue;
      const Image image = model_.decoder->Decode(denoised[i].latents, shape.height, shape.width);
      WritePng(folder + "/" + FileName(batch[i]), image,
               {{"prompt", prompts_.prompts[batch[i].prompt_index].text},
                {"seed", std::to_string(batch[i].seed)},
                {"steps", std::to_string(config_.eval.steps)},
                {"guidance", fmt::format("{}", config_.sampler.guidance)},
                {"model", config_.model.path},
                {"adapter", config_.model.adapter}});
    }
  }

 private:
  const Config& config_;
  const ModelFiles& model_;
  Parameters& parameters_;
  ConditionedPrompts prompts_;
  SequenceGroup* group_;
  Sampler sampler_;
};

// Whether a member of the group wants to stop.
bool AnyStops(SequenceGroup* group, bool own) {
  if (group == nullptr) return own;
  const auto size = static_cast<std::size_t>(group->size());
  const std::vector<Index> one(size, 1);
  const std::vector<unsigned char> send(size, own ? 1 : 0);
  std::vector<unsigned char> received(size);
  group->AllToAll(send.data(), one, received.data(), one);
  return std::any_of(received.begin(), received.end(), [](unsigned char wish) { return wish != 0; });
}

std::string SampleDirectory(const Config& config, const CommandLine& command) {
  std::string directory = RunDirectory(config, command.input);
  if (fs::exists(directory + "/grid.png") || fs::exists(directory + "/run.h5")) {
    throw UserError("run/directory = " + directory +
                    ": it holds results already; they are never overwritten, take another one (-d DIR)");
  }
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw FileError(directory + ": cannot be made: " + error.message());
  return directory;
}

void WriteSampleGrid(const std::string& directory, const std::vector<Request>& requests, const PromptList& prompts,
                     int seeds) {
  constexpr std::size_t kMost = 64;
  std::vector<Image> images;
  std::vector<std::string> captions;
  for (std::size_t i = 0; i < std::min(kMost, requests.size()); ++i) {
    images.push_back(ReadPng(directory + "/" + FileName(requests[i])));
    captions.push_back(prompts.prompts[requests[i].prompt_index].text);
  }
  WriteGrid(directory + "/grid.png", images, captions, std::clamp(seeds, 2, 8), GridScale(images[0].width));
}

}  // namespace

int RunSample(const CommandLine& command, World& world) {
  InstallSignalHandlers();
  Config config = ReadInput(command.input, command.overrides);
  CheckSample(config, !command.prompts.empty());
  if (world.under_mpi() && !MissingMpiSettings(world.fault_tolerant()).empty()) {
    throw UserError("mpirun was started without settings that several ranks need; start it with scripts/mpirun.sh");
  }
  world.SetLimit(std::chrono::hours(24));  // the longest that a rank may wait for the others' images
  StartComputing(config, world);
  UseWindows(config, world);

  const PromptList list = SamplePrompts(command, config);
  const Adapter adapter = ReadAdapter(config.model.adapter);
  const ModelFiles model = OpenModel(config.model.path, adapter.settings, true);
  CheckDegrees(config, model.layout->config());
  const std::unique_ptr<TextSource> text = OpenTextSource(config);
  text->Require(list);
  TextCondition negative;
  if (config.sampler.guidance > 1) negative = text->Embed(config.sampler.negative_prompt);
  std::vector<float> values;
  if (adapter.settings.rank > 0) values = AdapterValues(*model.layout, adapter.file);

  std::vector<PlacedRank> ranks;
  for (const std::string& host : world.AllGather(world.host())) ranks.push_back({static_cast<int>(ranks.size()), host});
  const auto groups = PlanSpGroups("ranks/explorer_sp", Role::kExplorer, ranks, config.ranks.explorer_sp);
  const std::size_t degree = static_cast<std::size_t>(config.ranks.explorer_sp);
  const std::size_t own_group = static_cast<std::size_t>(world.rank()) / degree;
  std::string directory;
  if (world.rank() == 0) directory = SampleDirectory(config, command);
  directory = world.Broadcast(directory);

  // The images in batches, dealt out to the groups in turn.
  const std::vector<Request> requests = EvaluationRequests(config, list.prompts, 0, 0);
  const std::size_t batch_size = static_cast<std::size_t>(config.sampler.batch);
  if (world.rank() == 0) {
    LogLine(fmt::format("{} images of {} prompts, {} x {} pixels, {} steps, guidance {}: {}", requests.size(),
                        list.prompts.size(), config.sampler.width, config.sampler.height, config.eval.steps,
                        config.sampler.guidance, directory));
  }
  std::exception_ptr failure;  // to be thrown between passes only: the group's others must not wait
  {
    ModelWeights weights(model.layout, model.weights, MakePrecision(config.model),
                         NetworkSigmas(config, model.scheduler));
    if (!values.empty()) weights.Put({0, false}, values);
    Parameters& parameters = values.empty() ? weights.Base() : weights.Of({0, false});
    std::unique_ptr<SpGroup> group;
    if (degree > 1) group = std::make_unique<SpGroup>(world, groups[own_group]);
    Sampling sampling(config, model, parameters, Condition(list, *text), std::move(negative), group.get());
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t from = 0, turn = 0; from < requests.size(); from += batch_size, ++turn) {
      if (turn % groups.size() != own_group) continue;
      if (AnyStops(group.get(), failure != nullptr || !StopSignal().empty())) break;
      const std::size_t end = std::min(requests.size(), from + batch_size);
      try {
        sampling.Run({requests.begin() + static_cast<Index>(from), requests.begin() + static_cast<Index>(end)},
                     directory);
      } catch (const FileError&) {
        failure = std::current_exception();
      }
      if (world.rank() == 0) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        LogLine(fmt::format("{}/{} images, {}", end, requests.size(), DescribeSeconds(seconds)));
      }
    }
  }
  if (failure) std::rethrow_exception(failure);
  // Everybody's images are written, or somebody has stopped.
  bool stopped = false;
  for (const std::string& signal : world.AllGather(StopSignal())) stopped = stopped || !signal.empty();
  if (stopped) return kExitStopped;
  if (world.rank() == 0) {
    WriteSampleGrid(directory, requests, list, config.eval.seeds);
    LogLine("images: " + directory + ", together in " + directory + "/grid.png");
  }
  return kExitFinished;
}

}  // namespace spotlight
