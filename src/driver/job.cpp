#include "driver/job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <random>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/channel.hpp"
#include "comm/group_client.hpp"
#include "comm/mpi_settings.hpp"
#include "config/check.hpp"
#include "config/dump.hpp"
#include "config/input.hpp"
#include "driver/agreed_restart.hpp"
#include "driver/computing.hpp"
#include "driver/coordinator.hpp"
#include "driver/dispatch.hpp"
#include "driver/explorer.hpp"
#include "driver/failure.hpp"
#include "driver/join.hpp"
#include "driver/pass_groups.hpp"
#include "driver/preemptions.hpp"
#include "driver/signals.hpp"
#include "driver/worker.hpp"
#include "io/checkpoint.hpp"
#include "io/tensor_store.hpp"
#include "io/tensor_store_folder.hpp"
#include "kernels/fingerprint.hpp"
#include "kernels/runtime.hpp"
#include "record/recording.hpp"
#include "record/run_directory.hpp"

namespace spotlight {
namespace {

using Attributes = std::map<std::string, std::string>;

constexpr double kStoreSeconds = 10;  // that the store may write at the end of a run

// Whoever shares a burst buffer with other runs has a folder of its own there.
std::string StorePath(const Config& config, const std::string& token) {
  if (config.store.path.empty()) return config.run.directory + "/store";
  const std::filesystem::path run = std::filesystem::path(config.run.directory + "/").lexically_normal().parent_path();
  return fmt::format("{}/{}-{}", config.store.path, run.filename().string(), token);
}

std::string DrawToken() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// What this run starts from.
struct Start {
  Config config;
  std::optional<Restart> restart;
  std::optional<Recording> recording;  // that is replayed
  RunState state;
};

Start PrepareStart(const CommandLine& command, World& world) {
  Start start;
  start.restart = AgreeOnRestart(command, world);
  if (start.restart) {
    start.state = LoadRunState(start.restart->checkpoint());
    start.config = ResumedConfig(command, start.state.input, start.restart->directory);
    ++start.state.restarts;
  } else if (!command.replay.empty()) {
    start.recording = ReadRecording(command.replay);
    start.config = ReplayedConfig(*start.recording, command.input, command.overrides);
  } else {
    start.config = ReadInput(command.input, command.overrides);
  }
  if (!start.recording && !start.config.explore.replay.empty()) {
    start.recording = ReadRecording(start.config.explore.replay);
    RequireReplay(*start.recording, start.config);
  }
  CheckConfig(start.config);
  return start;
}

void RequireMpiSettings(const World& world) {
  if (!world.under_mpi()) return;
  const std::vector<std::string> missing = MissingMpiSettings(world.fault_tolerant());
  if (missing.empty()) return;
  std::string text = "mpirun was started without settings that a run needs; start it with scripts/mpirun.sh. Missing:";
  for (const std::string& line : missing) text += "\n  " + line;
  throw UserError(text);
}

// For the banner: how many seeds of a prompt are tried.
std::string DescribeSeeds(const ExploreConfig& explore, int images, bool nobody) {
  if (explore.seeds == 0 || nobody) return "no seeds explored";
  if (explore.when == ExploreConfig::When::kCritical) return fmt::format("{} of a prompt trained on", images);
  return fmt::format("{}{} seeds explored a prompt", explore.Awaited() ? "" : "at most ", explore.seeds);
}

void PrintBanner(const Config& config, const Resources& resources, const World& world, const std::string& directory,
                 const std::vector<std::string>& problems) {
  const int explorers = world.role() == Role::kAll ? 0 : world.explorers();
  const bool nobody = config.explore.Overlaps() && !config.explore.Awaited() && explorers == 0;
  for (const std::string& problem : problems) LogWarning(problem);
  for (const std::string& note : resources.notes) LogLine(note);
  if (nobody) {
    LogWarning(fmt::format(
        "explore/seeds = {}, but there are no spot ranks, and trainers do not explore with explore/budget = "
        "deadline: nothing is explored {}. Start more ranks, or set explore/budget=fixed",
        config.explore.seeds, world.role() == Role::kAll ? "in a run of one process" : "unless spot ranks join"));
  }
  LogLine(fmt::format("spotlight: {} trainer(s), {} explorer(s), {} thread(s) a rank", world.trainers(), explorers,
                      KernelThreads()));
  LogLine(fmt::format("model {} ({:.2f} M parameters, {}), {} training and {} held-out prompts", config.model.path,
                      static_cast<double>(resources.model.layout->base().size()) / 1e6,
                      config.lora.rank > 0 ? fmt::format("LoRA of rank {}", config.lora.rank) : "all trained",
                      resources.train.prompts.size(), resources.eval.prompts.size()));
  if (config.ranks.trainer_sp > 1 || config.ranks.explorer_sp > 1) {
    LogLine(fmt::format("sequence parallelism: {} trainer(s) and {} explorer(s) share a pass", config.ranks.trainer_sp,
                        config.ranks.explorer_sp));
  }
  const bool critical = config.explore.seeds > 0 && config.explore.when == ExploreConfig::When::kCritical;
  const int each = critical ? config.explore.seeds : config.group.images;
  LogLine(
      fmt::format("iteration: {} prompts x {} images = {} rollouts of {} steps; {}; {} (sample, step) pairs in {} "
                  "updates",
                  config.group.prompts, each, config.group.prompts * each, config.sampler.steps,
                  DescribeSeeds(config.explore, config.group.images, nobody),
                  config.group.prompts * config.group.images * config.sampler.window_size, config.train.updates));
  if (const std::string overrides = DescribeOverrides(config); !overrides.empty()) LogLine(overrides);
  LogLine("run directory " + directory);
}

// Trained weights and optimizer state that the run starts with.
OptimizerState StartState(const Start& start, const Resources& resources) {
  const DitLayout& layout = *resources.model.layout;
  if (!start.restart) {
    std::vector<float> weights = resources.adapter;
    if (start.config.lora.rank == 0) {
      weights.resize(static_cast<std::size_t>(layout.base().size()));
      layout.base().Load(*resources.model.weights, weights);
    } else if (weights.empty()) {
      weights = InitialAdapter(layout, start.config.run.seed);
    }
    return TrainedWeights::InitialState(start.config, std::move(weights));
  }
  OptimizerState state = LoadOptimizerState(start.restart->checkpoint());
  const Index size = start.config.lora.rank > 0 ? layout.adapter().size() : layout.base().size();
  if (static_cast<Index>(state.weights.size()) != size) {
    throw UserError(start.restart->checkpoint() + ": holds " + std::to_string(state.weights.size()) +
                    " trained parameters, but the model has " + std::to_string(size));
  }
  return state;
}

// What workers ask about prompts.
Prompts AnswerPrompts(const Config& config, const Resources& resources, const FetchPrompts& fetch) {
  Prompts answer{fetch.list, {}};
  for (const std::uint32_t index : fetch.indices) {
    const PromptList& list = fetch.list == TextList::kEval ? resources.eval : resources.train;
    const TextCondition condition = resources.text->Embed(
        fetch.list == TextList::kNegative ? config.sampler.negative_prompt : list.prompts.at(index).text);
    answer.entries.push_back({index, static_cast<std::uint32_t>(condition.tokens), condition.embedding});
  }
  return answer;
}

// Whether the store's disk works, or at least says that it does not. It has some seconds to take what is there.
bool Answers(TensorStore& store) { return store.WaitWritten(kStoreSeconds) || store.Count().failing; }

// A run must end even if a write hangs: then the store's thread is left to the end of the process.
struct EndStore {
  void operator()(TensorStore* store) const {
    if (Answers(*store)) delete store;
  }
};
using Store = std::unique_ptr<TensorStore, EndStore>;

// The store of the run: what it holds depends on the fixed settings and contents, which a resumed run keeps. Another
// run has another token.
Store OpenStore(const Config& config, const Resources& resources, const std::string& token) {
  std::string run = token;
  for (const auto& [key, hash] : resources.contents) run += fmt::format(" {}={}", key, hash);
  const TransformerConfig& model = resources.model.layout->config();
  const Index tokens = Index{config.sampler.height / 16} * (config.sampler.width / 16);
  TensorStore::Options options;
  options.path = StorePath(config, token);
  options.run = run;
  options.sizes = {.latent = {tokens, model.in_channels},
                   .window = static_cast<std::size_t>(config.sampler.window_size),
                   .terms = resources.reward->names().size()};
  return Store(new TensorStore(options));
}

int RunCoordinator(Start& start, const Resources& resources, World& world, const std::vector<PassGroup>& groups,
                   std::uint64_t run_id, Server& server, OptimizerState state, const Attributes& attributes) {
  const Config& config = start.config;
  const std::string& directory = config.run.directory;
  const bool alone = world.role() == Role::kAll;
  std::vector<std::uint32_t> explorers;
  for (int rank = 0; rank < world.size() - config.ranks.parked && !alone; ++rank) {
    if (world.roles()[static_cast<std::size_t>(rank)] == Role::kExplorer) {
      explorers.push_back(static_cast<std::uint32_t>(rank));
    }
  }
  std::optional<Preemptions> preemptions;
  if (resources.trace && !explorers.empty()) {
    preemptions.emplace(config, *resources.trace, world.host(), explorers, start.state.elapsed_seconds);
  }
  RunRecord record(directory, {config, resources.train.prompts, resources.eval.prompts, resources.reward->names()});
  if (start.restart) {
    RemoveLaterCheckpoints(directory, start.restart->step);
    record.Resume(static_cast<int>(start.state.next_iteration), attributes);
  } else {
    record.Create(attributes);
  }
  start.state.input = DumpConfig(config);
  const DitLayout& layout = *resources.model.layout;
  Store store;
  const std::string token = start.state.token;
  if (!alone) store = OpenStore(config, resources, token);

  Dispatch::Parts parts{
      .role = alone ? Role::kAll : Role::kTrainer,
      .store = store.get(),
      .embeddings = [&](const FetchPrompts& fetch) { return AnswerPrompts(config, resources, fetch); },
      .weights = config.lora.rank > 0 ? layout.adapter().size() : layout.base().size(),
      .heads = static_cast<int>(layout.config().num_attention_heads),
      .fingerprint = alone ? 0 : ArithmeticFingerprint(),
      .contents = resources.contents};
  for (const PassGroup& group : groups) {
    for (const int rank : group.ranks) parts.trainers[static_cast<std::uint32_t>(rank)] = rank == group.ranks[0];
  }
  const auto began = std::chrono::steady_clock::now();
  const double elapsed_before = start.state.elapsed_seconds;
  std::optional<Dispatch> dispatch;
  if (!alone) {
    parts.welcome = [&] {
      return Welcome{.input = start.state.input, .directory = directory, .contents = resources.contents};
    };
  }
  if (preemptions) {
    parts.tick = [&] {
      const std::chrono::duration<double> run = std::chrono::steady_clock::now() - began;
      preemptions->Play(dispatch->roster(), elapsed_before + run.count());
    };
  }
  dispatch.emplace(config, run_id, server, std::move(parts));
  dispatch->Publish({start.state.next_iteration, false}, std::move(state.weights));
  if (!state.ema.empty()) dispatch->Publish({start.state.next_iteration, true}, std::move(state.ema));
  state = {};  // the moments are the trainers' matter
  Coordinator coordinator(config, resources, *dispatch, record, start.state, world.trainers(),
                          start.recording ? &*start.recording : nullptr);
  int code = kExitFinished;
  try {
    code = coordinator.Run();
  } catch (const RunFailed& failed) {
    LogWarning(failed.what());
    code = failed.exit_code();
  } catch (const PeerLost&) {  // a trainer: the others notice
    throw;
  } catch (const std::exception& error) {
    const Failure failure = DescribeFailure(error);
    if (failure.exit_code == kExitInternal) throw;
    LogWarning(failure.text);
    code = failure.exit_code;
  }
  dispatch->Finish();
  if (store != nullptr) {
    if (code == kExitFinished) store->Forget(std::numeric_limits<std::uint32_t>::max());
    const bool answers = Answers(*store);
    if (!answers) LogWarning(StorePath(config, token) + ": the disk does not answer; the store is left as it is");
    store.reset();
    if (code == kExitFinished && answers) RemoveTensorStore(StorePath(config, token));
  }
  return code;
}

// A trainer.
int RunTrainer(const Config& config, const Resources& resources, World& world, std::uint64_t run_id, NodeMemory& node,
               Client& client, OptimizerState state, std::span<const int> members) {
  const std::uint32_t rank = static_cast<std::uint32_t>(world.rank());
  client.Call(Encode(Hello{rank, Role::kTrainer, world.host(), static_cast<std::uint32_t>(getpid()), false,
                           ArithmeticFingerprint(), resources.contents},
                     run_id));
  std::unique_ptr<SpGroup> group;
  if (members.size() > 1) {
    group = std::make_unique<SpGroup>(world, members);
    LogLine(fmt::format("shares passes with ranks {}", fmt::join(members, ", ")));
  }
  Worker worker(config, resources, world, rank, run_id, &node, state, group.get());
  state = {};
  const std::vector<std::uint32_t> ranks(members.begin(), members.end());
  if (group == nullptr) return worker.Run({client, client}, ranks);
  GroupClient shared(*group, client);
  return worker.Run({shared, client}, ranks);
}

int RunWorker(const Config& config, const Resources& resources, World& world, std::uint64_t run_id,
              const std::string& address, OptimizerState state, std::span<const int> members) {
  OpenLog(fmt::format("{}/logs/rank_{:04}.log", config.run.directory, world.rank()), false);
  LogLine(fmt::format("{}, {} thread(s)", ProcessName(), KernelThreads()));
  // Connects now, so that a loss from here on is noticed. The coordinator may be long in the file system.
  const std::unique_ptr<Client> client = MakeClient(address, std::chrono::minutes(10), std::to_string(world.rank()));
  NodeMemory node(NodeSession(run_id));
  int code = kExitFinished;
  if (world.role() == Role::kTrainer) {
    code = RunTrainer(config, resources, world, run_id, node, *client, std::move(state), members);
  } else {
    try {
      code = Explorer(config, resources, world, 0, false, run_id, node, *client).Run();
    } catch (const RunFailed& refused) {  // the coordinator has said why
      LogWarning(refused.what());
    } catch (const std::exception& error) {
      const Failure failure = DescribeFailure(error);
      if (failure.exit_code != kExitInternal) throw;
      // Our bug, or no memory for the weights: the end of this rank only.
      LogWarning(failure.text);
      fmt::print(stderr, "spotlight: {}: {}\n", ProcessName(), failure.text);
      code = kExitInternal;
    }
  }
  LogLine(fmt::format("left with code {}", code));
  return code;
}

// network: the coordinator's; of the others none.
int PlayRole(const CommandLine& command, World& world, const std::string& command_text,
             std::unique_ptr<NetworkServer>& network) {
  InstallSignalHandlers();
  RequireMpiSettings(world);
  Start start = PrepareStart(command, world);
  CheckRanks(start.config, world.size());
  world.AssignRoles(start.config.ranks.trainers);
  const std::vector<PassGroup> groups = PlanPassGroups(start.config, world);
  StartComputing(start.config, world);
  UseWindows(start.config, world);
  const Resources resources = LoadResources(start.config);
  if (start.restart) RequireSameContents(start.state.contents, resources, start.config);
  if (start.recording) RequireSameContents(start.recording->contents, resources, start.config);
  start.state.contents = resources.contents;
  if (start.state.token.empty()) start.state.token = DrawToken();  // the coordinator's counts
  OptimizerState state;
  if (world.role() != Role::kExplorer) state = StartState(start, resources);

  // The coordinator names the folder (it may hold the time of day) and opens the control plane.
  const bool coordinates = world.rank() == world.coordinator();
  std::string directory = start.config.run.directory;
  std::string address;
  std::optional<RunLock> lock;
  if (coordinates) {
    directory = RunDirectory(start.config, command.input.empty() ? "replay" : command.input);
    lock.emplace(start.restart ? ReopenRunDirectory(*start.restart) : CreateRunDirectory(directory));
    std::filesystem::create_directories(directory + "/logs");
    if (world.size() > 1) {
      const RanksConfig& ranks = start.config.ranks;
      const bool one_node = world.local_ranks() == world.size();
      if (!one_node && ranks.host == "127.0.0.1") {
        throw UserError(
            "ranks/host = 127.0.0.1 keeps out the ranks on other nodes; give it the name by which they know " +
            world.host());
      }
      network = MakeServer(ranks.host.empty() ? world.host() : ranks.host, ranks.port);
      // The machine need not know its own name.
      address = one_node ? network->AddressAt("127.0.0.1") : network->address();
    }
  }
  directory = world.Broadcast(directory, world.coordinator());
  address = world.Broadcast(address, world.coordinator());
  start.config.run.directory = directory;
  const std::uint64_t run_id = std::hash<std::string>{}(directory + address);
  NodeMemory::RemoveLeftovers();
  world.Part();
  if (!coordinates) {
    return RunWorker(start.config, resources, world, run_id, address, std::move(state),
                     world.role() == Role::kTrainer ? GroupOf(groups, world.rank()).ranks : std::vector<int>{});
  }

  OpenLog(directory + "/spotlight.log", true);
  PrintBanner(start.config, resources, world, directory,
              start.restart ? start.restart->problems : std::vector<std::string>{});
  if (start.restart) LogLine(fmt::format("resuming at iteration {}", start.state.next_iteration));
  Attributes attributes = {{"command_line", command_text},
                           {"hosts", world.host()},
                           {"mpi", MpiVersion()},
                           {"restart_count", std::to_string(start.state.restarts)}};
  for (const auto& [key, hash] : resources.contents) attributes["hash of " + key] = hash;
  if (world.size() > 1) {
    const JoinFile join(directory, network->address(), run_id);
    return RunCoordinator(start, resources, world, groups, run_id, *network, std::move(state), attributes);
  }
  Worker worker(start.config, resources, world, 0, run_id, nullptr, state);
  const std::unique_ptr<Server> local = MakeLocalServer([&](Client& client) { worker.Turn({client, client}, {0}); });
  return RunCoordinator(start, resources, world, groups, run_id, *local, std::move(state), attributes);
}

}  // namespace

int RunJob(const CommandLine& command, World& world, const std::string& command_text) {
  std::unique_ptr<NetworkServer> network;
  try {
    return PlayRole(command, world, command_text, network);
  } catch (const std::exception& error) {
    if (network != nullptr && world.parted()) world.NoteExit(DescribeFailure(error).exit_code);
    throw;
  }
}

int CheckJob(const CommandLine& command, const World& world) {
  Config config = ReadInput(command.input, command.overrides);
  CheckConfig(config);
  if (world.size() > 1) CheckRanks(config, world.size());
  StartComputing(config, world);
  const Resources resources = LoadResources(config, ResourceUse::kPlan);
  if (world.rank() != 0) return kExitFinished;
  const auto describe = [](const PromptList& list) {
    return fmt::format("{}: {} prompts ({} blank lines, {} duplicates)", list.path, list.prompts.size(),
                       list.blank_lines, list.duplicates);
  };
  LogLine(fmt::format("{}: all settings are allowed", command.input));
  LogLine(fmt::format("{}: {:.2f} M parameters", config.model.path,
                      static_cast<double>(resources.model.layout->base().size()) / 1e6));
  LogLine(describe(resources.train));
  LogLine(describe(resources.eval));
  for (const std::string& note : resources.notes) LogLine(note);
  return kExitFinished;
}

}  // namespace spotlight
