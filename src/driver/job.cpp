#include "driver/job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/channel.hpp"
#include "comm/group_client.hpp"
#include "comm/mpi_settings.hpp"
#include "config/check.hpp"
#include "config/dump.hpp"
#include "config/input.hpp"
#include "driver/coordinator.hpp"
#include "driver/dispatch.hpp"
#include "driver/dry_run.hpp"
#include "driver/pass_groups.hpp"
#include "driver/signals.hpp"
#include "driver/worker.hpp"
#include "kernels/runtime.hpp"
#include "record/run_directory.hpp"

namespace spotlight {
namespace {

using Attributes = std::map<std::string, std::string>;

// Paths may change on resume, what is read through them may not.
void RequireSameContents(const RunState& state, const Resources& resources, const Config& config) {
  const std::map<std::string, std::string> paths = {
      {"model/path", config.model.path},       {"prompts/train", config.prompts.train},
      {"prompts/eval", config.prompts.eval},   {"prompts/embeddings", config.prompts.embeddings},
      {"model/adapter", config.model.adapter}, {"reward/detector", config.reward.detector}};
  std::string changed;
  for (const auto& [key, hash] : state.contents) {
    const auto found = resources.contents.find(key);
    if (found != resources.contents.end() && found->second == hash) continue;
    changed += fmt::format("{}{} ({})", changed.empty() ? "" : ", ", key, paths.at(key));
  }
  if (changed.empty()) return;
  throw UserError("a resumed run must read the same files, but the contents have changed since it began: " + changed +
                  ". Restore them, or start a new run in another directory");
}

// What this run starts from.
struct Start {
  Config config;
  std::optional<Restart> restart;
  RunState state;
};

Start PrepareStart(const CommandLine& command) {
  Start start;
  start.restart = FindRestart(command);
  if (start.restart) {
    start.state = LoadRunState(start.restart->checkpoint());
    start.config = ResumedConfig(command, start.state.input, start.restart->directory);
    ++start.state.restarts;
  } else {
    start.config = ReadInput(command.input, command.overrides);
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

void PrintBanner(const Config& config, const Resources& resources, const World& world, const std::string& directory,
                 const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) LogWarning(problem);
  for (const std::string& note : resources.notes) LogLine(note);
  LogLine(fmt::format("spotlight: {} trainer(s), {} explorer(s), {} thread(s) a rank", world.trainers(),
                      world.role() == Role::kAll ? 0 : world.explorers(), KernelThreads()));
  LogLine(fmt::format("model {} ({:.2f} M parameters, {}), {} training and {} held-out prompts", config.model.path,
                      static_cast<double>(resources.model.layout->base().size()) / 1e6,
                      config.lora.rank > 0 ? fmt::format("LoRA of rank {}", config.lora.rank) : "all trained",
                      resources.train.prompts.size(), resources.eval.prompts.size()));
  if (config.ranks.trainer_sp > 1 || config.ranks.explorer_sp > 1) {
    LogLine(fmt::format("sequence parallelism: {} trainer(s) and {} explorer(s) share a pass", config.ranks.trainer_sp,
                        config.ranks.explorer_sp));
  }
  const int images = config.group.prompts * config.group.images;
  LogLine(
      fmt::format("iteration: {} prompts x {} images = {} rollouts of {} steps; {} seeds explored a prompt; "
                  "{} (sample, step) pairs in {} updates",
                  config.group.prompts, config.group.images, images, config.sampler.steps, config.explore.seeds,
                  images * config.sampler.window_size, config.train.updates));
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

int RunCoordinator(Start& start, const Resources& resources, World& world, const std::vector<PassGroup>& groups,
                   std::uint64_t run_id, Server& server, OptimizerState state, const Attributes& attributes) {
  const std::string& directory = start.config.run.directory;
  RunRecord record(directory,
                   {start.config, resources.train.prompts, resources.eval.prompts, resources.reward->names()});
  if (start.restart) {
    record.Resume(static_cast<int>(start.state.next_iteration), attributes);
  } else {
    record.Create(attributes);
  }
  start.state.input = DumpConfig(start.config);
  const DitLayout& layout = *resources.model.layout;
  std::map<std::uint32_t, Role> callers, followers;
  for (const PassGroup& group : groups) {
    for (const int rank : group.ranks) {
      (rank == group.ranks[0] ? callers : followers)[static_cast<std::uint32_t>(rank)] = group.role;
    }
  }
  Dispatch dispatch(
      start.config, callers, run_id, server,
      [&](const FetchPrompts& fetch) { return AnswerPrompts(start.config, resources, fetch); },
      start.config.lora.rank > 0 ? layout.adapter().size() : layout.base().size());
  dispatch.Watch(std::move(followers));
  dispatch.Publish({start.state.next_iteration, false}, std::move(state.weights));
  if (!state.ema.empty()) dispatch.Publish({start.state.next_iteration, true}, std::move(state.ema));
  state = {};  // the moments are the trainers' matter
  const int explorers = world.role() == Role::kAll ? 0 : world.explorers();
  Coordinator coordinator(start.config, resources, dispatch, record, start.state, world.trainers(), explorers);
  try {
    const int code = coordinator.Run();
    dispatch.Finish();
    return code;
  } catch (const RunFailed& failed) {
    LogWarning(failed.what());
    dispatch.Finish();
    return failed.exit_code();
  } catch (const FileError& error) {
    LogWarning(error.what());
    dispatch.Finish();
    return kExitFile;
  }
}

int RunWorker(const Config& config, const Resources& resources, World& world, std::uint64_t run_id,
              const std::string& address, OptimizerState state, std::span<const int> members) {
  OpenLog(fmt::format("{}/logs/rank_{:04}.log", config.run.directory, world.rank()), false);
  // Connects now, so that a loss from here on is noticed. The coordinator may be long in the file system.
  const std::unique_ptr<Client> client = MakeClient(address, std::chrono::minutes(10), std::to_string(world.rank()));
  std::unique_ptr<SpGroup> group;
  if (members.size() > 1) {
    group = std::make_unique<SpGroup>(world, members);
    LogLine(fmt::format("shares passes with ranks {}", fmt::join(members, ", ")));
  }
  Worker worker(config, resources, world, run_id, state, group.get());
  state = {};
  LogLine(fmt::format("{}, {} thread(s)", ProcessName(), KernelThreads()));
  int code = kExitFinished;
  if (group == nullptr) {
    code = worker.Run(*client);
  } else {
    if (group->index() > 0) worker.Greet(*client);
    GroupClient shared(*group, group->index() == 0 ? client.get() : nullptr);
    code = worker.Run(shared);
  }
  LogLine(fmt::format("left with code {}", code));
  return code;
}

}  // namespace

int RunJob(const CommandLine& command, World& world, const std::string& command_text) {
  InstallSignalHandlers();
  RequireMpiSettings(world);
  Start start = PrepareStart(command);
  CheckRanks(start.config, world.size());
  world.AssignRoles(start.config.ranks.trainers);
  const std::vector<PassGroup> groups = PlanPassGroups(start.config, world);
  StartKernels(ThreadsPerRank(start.config, world));
  const Resources resources = LoadResources(start.config);
  if (start.restart) RequireSameContents(start.state, resources, start.config);
  start.state.contents = resources.contents;
  OptimizerState state;
  if (world.role() != Role::kExplorer) state = StartState(start, resources);

  // The coordinator names the folder (it may hold the time of day) and opens the control plane.
  const bool coordinates = world.rank() == world.coordinator();
  std::string directory = start.config.run.directory;
  std::string address;
  std::unique_ptr<NetworkServer> network;
  if (coordinates) {
    directory = RunDirectory(start.config, command.input);
    if (!start.restart) CreateRunDirectory(directory);
    std::filesystem::create_directories(directory + "/logs");
    if (world.size() > 1) {
      const bool one_node = world.local_ranks() == world.size();
      network = MakeServer(one_node ? "127.0.0.1" : world.host());
      address = network->address();
    }
  }
  directory = world.Broadcast(directory, world.coordinator());
  address = world.Broadcast(address, world.coordinator());
  start.config.run.directory = directory;
  const std::uint64_t run_id = std::hash<std::string>{}(directory + address);
  if (!coordinates) {
    return RunWorker(start.config, resources, world, run_id, address, std::move(state),
                     GroupOf(groups, world.rank()).ranks);
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
    return RunCoordinator(start, resources, world, groups, run_id, *network, std::move(state), attributes);
  }
  Worker worker(start.config, resources, world, run_id, state);
  const std::unique_ptr<Server> local = MakeLocalServer([&](Client& client) { worker.Turn(client); });
  return RunCoordinator(start, resources, world, groups, run_id, *local, std::move(state), attributes);
}

int CheckJob(const CommandLine& command, const World& world) {
  const Config config = ReadInput(command.input, command.overrides);
  CheckConfig(config);
  if (world.size() > 1) CheckRanks(config, world.size());
  StartKernels(ThreadsPerRank(config, world));
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
