// The run directory: where it is, whether it may be used, and which checkpoint a resumed run starts from.
//
// Runs and pre-trainings have their checkpoints apart by the file that holds their state (`state_file`).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/command_line.hpp"
#include "config/config.hpp"
#include "record/run_lock.hpp"

namespace spotlight {

struct Restart {
  std::string directory;
  int step = 0;
  int newest = 0;                     // of the complete checkpoints there were when it was chosen
  std::vector<std::string> problems;  // newer checkpoints that are damaged
  std::string checkpoint() const;     // its folder
};

// What -r asks for: `latest` (in -d, else the newest folder under run/ that has such a checkpoint), a run directory, or
// one of its checkpoint folders. UserError if there is nothing to resume; FileError if all checkpoints are damaged.
std::optional<Restart> FindRestart(const CommandLine& command, const std::string& state_file);

// The input of a resumed run: the command line's file, else the checkpoint's own, `input_text`; then the overrides.
// UserError if a setting changes that must not (config/fields.hpp says which), or if another directory is named.
Config ResumedConfig(const CommandLine& command, const std::string& input_text, const std::string& directory);

// What the input says, or run/<input stem>-<yyyymmdd>-<hhmmss>, with -2, -3, ... behind it where that is taken; this
// one is made at once, so that nobody else gets it.
std::string RunDirectory(const Config& config, const std::string& input_path);

// Makes the folder of a new run, checks that it can be written, and locks it. UserError: it holds a run already, or one
// is going on in it.
RunLock CreateRunDirectory(const std::string& directory);

// Locks the folder of a run that goes on. UserError: a run is going on in it, or has been since `restart` was chosen.
RunLock ReopenRunDirectory(const Restart& restart);

}  // namespace spotlight
