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

// Of the folders under run/ that hold a checkpoint, the one written to last; "" if none.
std::string NewestRun() {
  std::string newest;
  fs::file_time_type newest_time;
  if (!fs::is_directory("run")) return newest;
  for (const auto& entry : fs::directory_iterator("run")) {
    const fs::path checkpoints = entry.path() / "checkpoints";
    if (!fs::is_directory(checkpoints) || ListCheckpoints(entry.path().string()).empty()) continue;
    const fs::file_time_type time = fs::last_write_time(checkpoints);
    if (newest.empty() || time > newest_time) {
      newest = entry.path().string();
      newest_time = time;
    }
  }
  return newest;
}

}  // namespace

std::string Restart::checkpoint() const { return CheckpointPath(directory, step); }

std::optional<Restart> FindRestart(const CommandLine& command) {
  if (command.restart.empty()) return std::nullopt;
  Restart restart;
  if (command.restart == "latest") {
    restart.directory = command.directory.empty() ? NewestRun() : command.directory;
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
      VerifyCheckpoint(restart.directory, restart.step);
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
  return restart;
}

Config ResumedConfig(const CommandLine& command, const std::string& input_text, const std::string& directory) {
  const std::string name = directory + " (checkpoint's input)";
  const Config before = ReadInputText(input_text, name, {});
  Config config = command.input.empty() ? ReadInputText(input_text, name, command.overrides)
                                        : ReadInput(command.input, command.overrides);
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
  return fmt::format("run/{}-{:%Y%m%d-%H%M%S}", fs::path(input_path).stem().string(),
                     fmt::localtime(std::time(nullptr)));
}

void CreateRunDirectory(const std::string& directory) {
  if (fs::exists(fs::path(directory) / "run.h5")) {
    throw UserError("run/directory = " + directory + ": it holds a run already; resume that with -r latest -d " +
                    directory + ", or choose another directory with -d");
  }
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
}

}  // namespace spotlight
