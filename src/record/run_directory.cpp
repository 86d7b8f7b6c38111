#include "record/run_directory.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/error.hpp"
#include "config/dump.hpp"
#include "config/input.hpp"
#include "io/atomic_file.hpp"
#include "io/checkpoint.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

// Whether the newest complete checkpoint in the run directory is of this kind. False where one may not look.
bool HasCheckpointOf(const std::string& directory, const std::string& state_file) {
  try {
    const std::vector<int> steps = ListCheckpoints(directory);
    std::error_code error;
    return !steps.empty() && fs::exists(fs::path(CheckpointPath(directory, steps.back())) / state_file, error);
  } catch (const FileError&) {
    return false;
  }
}

// Of the folders under run/ that hold such a checkpoint, the one written to last; "" if none.
std::string NewestRun(const std::string& state_file) {
  std::string newest;
  fs::file_time_type newest_time;
  std::error_code error;
  for (fs::directory_iterator entry("run", error), end; !error && entry != end; entry.increment(error)) {
    const std::string directory = entry->path().string();
    if (!HasCheckpointOf(directory, state_file)) continue;
    std::error_code gone;
    const fs::file_time_type time = fs::last_write_time(entry->path() / "checkpoints", gone);
    if (!gone && (newest.empty() || time > newest_time)) {
      newest = directory;
      newest_time = time;
    }
  }
  return newest;
}

// UserError unless the checkpoint was written by what is to go on from it.
void RequireKind(const Restart& restart, const std::string& state_file) {
  if (fs::exists(fs::path(restart.checkpoint()) / state_file)) return;
  throw UserError(
      fmt::format("-r: {} has no {}: it is of another kind of run. A pre-training goes on with spotlight pretrain -r, "
                  "a training run with spotlight -r",
                  restart.checkpoint(), state_file));
}

bool SameDirectory(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  return fs::absolute(a).lexically_normal() == fs::absolute(b).lexically_normal();
}

// A folder of a run that is going on has no business with another one's name.
void RequireOwnDirectory(const CommandLine& command, const Config& config, const std::string& directory) {
  const auto source = config.sources.find("run/directory");
  // What the checkpoint's own input says may be where the run was before it was moved.
  const bool asked = source != config.sources.end() && (source->second == "command line" || !command.input.empty());
  if (!asked || config.run.directory.empty() || SameDirectory(config.run.directory, directory)) return;
  throw UserError(
      fmt::format("-r goes on in {}, but run/directory ({}) = {}: leave that out. For a branch of the run, "
                  "copy its directory and go on in the copy",
                  directory, source->second, config.run.directory));
}

void RequireNoRun(const std::string& directory) {
  if (!fs::exists(fs::path(directory) / "run.h5") && ListCheckpoints(directory).empty()) return;
  throw UserError("run/directory = " + directory + ": it holds a run already; resume that with -r latest -d " +
                  directory + ", or choose another directory with -d");
}

}  // namespace

std::string Restart::checkpoint() const { return CheckpointPath(directory, step); }

std::optional<Restart> FindRestart(const CommandLine& command, const std::string& state_file) {
  if (command.restart.empty()) return std::nullopt;
  Restart restart;
  if (command.restart == "latest") {
    restart.directory = command.directory.empty() ? NewestRun(state_file) : command.directory;
    if (restart.directory.empty()) {
      throw UserError("-r latest: no folder under run/ holds a checkpoint; name the run directory with -d");
    }
  } else {
    fs::path path = fs::path(command.restart).lexically_normal();
    if (path.filename().empty()) path = path.parent_path();
    const std::string name = path.filename().string();
    if (name.starts_with("step_") && path.parent_path().filename() == "checkpoints") {  // one certain checkpoint
      restart.directory = path.parent_path().parent_path().string();
      const std::vector<int> steps = ListCheckpoints(restart.directory);
      restart.step = std::atoi(name.c_str() + 5);
      if (std::find(steps.begin(), steps.end(), restart.step) == steps.end()) {
        throw UserError("-r " + command.restart + ": there is no complete checkpoint (no file DONE in it)");
      }
      restart.newest = steps.back();
      VerifyCheckpoint(restart.directory, restart.step);
      RequireKind(restart, state_file);
      return restart;
    }
    restart.directory = path.string();
  }
  if (!fs::is_directory(restart.directory)) throw UserError("-r: no such run directory: " + restart.directory);
  const std::optional<int> step = NewestGoodCheckpoint(restart.directory, restart.problems);
  if (!step) {
    if (restart.problems.empty()) {
      throw UserError("-r: " + restart.directory +
                      "/checkpoints holds no checkpoint; start the run anew with another -d");
    }
    throw FileError("-r: every checkpoint in " + restart.directory + " is damaged: " + restart.problems.front());
  }
  restart.step = *step;
  restart.newest = ListCheckpoints(restart.directory).back();
  RequireKind(restart, state_file);
  return restart;
}

Config ResumedConfig(const CommandLine& command, const std::string& input_text, const std::string& directory) {
  const std::string name = directory + " (checkpoint's input)";
  const Config before = ReadInputText(input_text, name, {});
  Config config = command.input.empty() ? ReadInputText(input_text, name, command.overrides)
                                        : ReadInput(command.input, command.overrides);
  RequireOwnDirectory(command, config, directory);
  config.run.directory = directory;
  // What was chosen then is chosen still.
  if (config.model.activations == ModelConfig::Activations::kAuto) config.model.activations = before.model.activations;
  std::string fixed;
  for (const Difference& difference : CompareConfigs(before, config)) {
    if (difference.on_resume != OnResume::kFixedOnResume) continue;
    fixed += fmt::format("{}{} (was {}, now {})", fixed.empty() ? "" : ", ", difference.key, difference.first,
                         difference.second);
  }
  if (fixed.empty()) return config;
  throw UserError("a resumed run must keep these settings: " + fixed +
                  ". Start a new run in another directory to change them");
}

std::string RunDirectory(const Config& config, const std::string& input_path) {
  if (!config.run.directory.empty()) return config.run.directory;
  const std::string name =
      fmt::format("run/{}-{:%Y%m%d-%H%M%S}", fs::path(input_path).stem().string(), fmt::localtime(std::time(nullptr)));
  std::string directory = name;
  std::error_code error;
  fs::create_directories("run", error);
  for (int number = 2; !error && !fs::create_directory(directory, error); ++number) {
    directory = fmt::format("{}-{}", name, number);
  }
  if (error) throw UserError("run/directory = " + directory + ": cannot be made: " + error.message());
  return directory;
}

RunLock CreateRunDirectory(const std::string& directory) {
  RequireNoRun(directory);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw UserError("run/directory = " + directory + ": cannot be made: " + error.message());
  const std::string probe = directory + "/.writable";
  try {
    WriteFileAtomically(probe, "");
  } catch (const FileError&) {
    throw UserError("run/directory = " + directory + ": is not writable; choose another directory with -d");
  }
  fs::remove(probe);
  RunLock lock(directory);
  RequireNoRun(directory);  // one that has begun and ended meanwhile
  return lock;
}

RunLock ReopenRunDirectory(const Restart& restart) {
  RunLock lock(restart.directory);
  const std::vector<int> steps = ListCheckpoints(restart.directory);
  if (!steps.empty() && steps.back() == restart.newest && HasCheckpoint(restart.directory, restart.step)) return lock;
  throw UserError("-r: another run has just worked in " + restart.directory +
                  "; if this one is still wanted, start it "
                  "again");
}

}  // namespace spotlight
