#include "record/recording.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "config/dump.hpp"
#include "config/input.hpp"

namespace spotlight {

Recording ReadRecording(const std::string& path) {
  const RunFile file(path);
  if (!file.Holds("/explored")) {
    throw UserError("explore/replay = " + path + ": holds no explored seeds; name the run.h5 of a run of this version");
  }
  Recording recording{.path = path, .input = file.ReadAttribute("input"), .contents = {}, .explored = {}};
  constexpr const char* kHash = "hash of ";
  for (const std::string& name : file.AttributeNames()) {
    if (name.starts_with(kHash)) {
      recording.contents[name.substr(std::string(kHash).size())] = file.ReadAttribute(name);
    }
  }
  // A finished run has one more row, of its final evaluation.
  const Config config = ReadInputText(recording.input, path, {});
  recording.iterations = std::min(config.run.iterations, static_cast<int>(file.Steps()));
  for (ExploredRow& row : file.ReadExplored()) recording.explored[row.step].push_back(row);
  return recording;
}

void RequireReplay(const Recording& recording, Config& config) {
  const Config before = ReadInputText(recording.input, recording.path + " (its input)", {});
  // What was chosen then is chosen still.
  if (config.model.activations == ModelConfig::Activations::kAuto) config.model.activations = before.model.activations;
  std::string fixed;
  for (const Difference& difference : CompareConfigs(before, config)) {
    if (difference.on_resume != OnResume::kFixedOnResume) continue;
    fixed += fmt::format("{}{} (was {}, now {})", fixed.empty() ? "" : ", ", difference.key, difference.first,
                         difference.second);
  }
  if (!fixed.empty()) {
    throw UserError("a replay of " + recording.path + " must keep these settings: " + fixed +
                    ". Leave them out, or start a run without --replay");
  }
  if (config.run.iterations > recording.iterations) {
    throw UserError(fmt::format("run/iterations = {}, but {} holds {}; add run/iterations={}", config.run.iterations,
                                recording.path, recording.iterations, recording.iterations));
  }
}

Config ReplayedConfig(const Recording& recording, const std::string& input_path,
                      const std::vector<std::string>& overrides) {
  const std::string name = recording.path + " (its input)";
  Config config;
  if (input_path.empty()) {
    config = ReadInputText(recording.input, name, overrides);
    const auto source = config.sources.find("run/directory");
    const bool given = source != config.sources.end() && source->second == "command line";
    if (!given) config.run.directory.clear();  // that of the run itself
  } else {
    config = ReadInput(input_path, overrides);
  }
  RequireReplay(recording, config);
  return config;
}

}  // namespace spotlight
