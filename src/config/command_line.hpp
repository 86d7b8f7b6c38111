// The command line: what to do, with which input, overridden by what.
#pragma once

#include <string>
#include <vector>

namespace spotlight {

struct CommandLine {
  enum class Mode { kRun, kJoin, kCheck, kDryRun, kShowConfig, kDescribe, kListRewards, kVersion, kHelp };
  // What is run, checked or planned: post-training, or what the first word says (pretrain, sample, calibrate,
  // study ranks).
  enum class Task { kTrain, kPretrain, kSample, kCalibrate, kStudyRanks };
  Mode mode = Mode::kRun;
  Task task = Task::kTrain;
  std::vector<std::string> prompts;    // of --prompt, for sample
  std::string input;                   // may be empty with `restart` or `replay`, or where no input is needed
  std::vector<std::string> overrides;  // "section/key=value"; -d and -t are appended as run/directory, run/time_limit
  std::string restart;                 // "latest" or a path; empty: a new run
  std::string replay;                  // of --replay: a run.h5, appended to overrides as explore/replay
  std::string join;                    // of --join: a run directory, or an address; empty: not given
  std::string directory;               // of -d
  std::string time_limit;              // of -t, "hh:mm:ss"
  std::string describe_section;        // of --describe; empty: all sections
};

// Throws UserError (kExitUsage) for a mistake, with the nearest option, key or input file; without any argument the
// message is the few lines of usage. An input file that is not there is refused here, before MPI or a GPU is touched.
CommandLine ParseCommandLine(int argc, const char* const* argv);

// One screen.
std::string HelpText();

}  // namespace spotlight
