// What a run explored, read back from its run.h5: --replay gives a run that explored as much as time allowed its bits
// again, however fast the machine is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "io/run_file.hpp"

namespace spotlight {

struct Recording {
  std::string path;
  std::string input;                                          // the resolved input as text
  std::map<std::string, std::string> contents;                // Resources::contents
  int iterations = 0;                                         // that it has
  std::map<std::int64_t, std::vector<ExploredRow>> explored;  // by the step whose training it ran beside
};

// FileError: it cannot be read. UserError: it is no run.h5 of this version.
Recording ReadRecording(const std::string& path);

// What a run that explores by the recording must keep: UserError if a setting differs that must not, or if it asks for
// more iterations than were recorded.
void RequireReplay(const Recording& recording, Config& config);

// The input of a replay: the command line's file, else the recording's own; then the overrides. UserErrors of
// RequireReplay.
Config ReplayedConfig(const Recording& recording, const std::string& input_path,
                      const std::vector<std::string>& overrides);

}  // namespace spotlight
