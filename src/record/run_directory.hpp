// The run directory: where it is, whether it may be used, and which checkpoint a resumed run starts from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "config/config.hpp"

namespace spotlight {

struct Restart {
  std::string directory;
  int step = 0;
  std::vector<std::string> problems;  // newer checkpoints that are damaged
  std::string checkpoint() const;     // its folder
};

// What -r asks for: `latest` (in -d, else the newest folder under run/ that has a checkpoint), a run directory, or one
// of its checkpoint folders. UserError if there is nothing to resume; FileError if all checkpoints are damaged.
std::optional<Restart> FindRestart(const CommandLine& command);

// The input of a resumed run: the command line's file, else the checkpoint's own, `input_text`; then the overrides.
// UserError if a setting changes that must not (config/fields.hpp says which).
Config ResumedConfig(const CommandLine& command, const std::string& input_text, const std::string& directory);

// run/<input stem>-<yyyymmdd>-<hhmmss>, or what the input says.
std::string RunDirectory(const Config& config, const std::string& input_path);

// Makes the folder and checks that it can be written. A folder that holds a run already is a UserError.
void CreateRunDirectory(const std::string& directory);

}  // namespace spotlight
