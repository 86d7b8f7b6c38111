#include "config/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "config/field_types.hpp"
#include "config/suggest.hpp"

namespace spotlight {
namespace {

constexpr const char* kUsage =
    "usage: spotlight INPUT.ini [section/key=value ...]           post-train a model\n"
    "       spotlight sample INPUT.ini [--prompt TEXT ...]        images from a model, perhaps with an adapter\n"
    "       spotlight pretrain INPUT.ini [section/key=value ...]  train a small base model\n"
    "       spotlight -r latest [-d DIR]                          go on from the last checkpoint\n"
    "       spotlight calibrate INPUT.ini | study ranks -r RUN    how well cheap and stale exploration ranks seeds\n"
    "       spotlight --join DIR                                  explore for the run in DIR, as a spot job\n"
    "       spotlight INPUT.ini --check | --dry-run               test the input; plan memory, time and cost\n"
    "       spotlight --help                                      all options";

// What CLI11 fills in.
struct Options {
  CommandLine line;
  std::vector<std::string> words;  // the task, the input, overrides
  std::string list;
  bool check = false;
  bool dry_run = false;
  bool show_config = false;
  bool version = false;
  bool help = false;
};

void AddOptions(CLI::App& app, Options& options) {
  app.set_help_flag();  // ours, so that --help is a mode like the others
  app.add_option("words", options.words)->group("");
  app.add_flag("--check", options.check, "test the input and the files that it names, then stop");
  app.add_flag("--dry-run", options.dry_run, "as --check, and show batches, memory, time and cost");
  app.add_flag("--show-config", options.show_config, "show how this program was built");
  app.add_option("--describe", options.line.describe_section, "show the keys of a section, or of all")
      ->expected(0, 1)
      ->type_name("[SECTION]");
  app.add_option("--list", options.list, "show what may be named in the input: rewards")->type_name("WHAT");
  app.add_option("-r,--restart", options.line.restart, "go on from a checkpoint: latest, or its path")
      ->type_name("WHERE");
  app.add_option("--replay", options.line.replay, "explore what this run.h5 says, for the same bits as its run")
      ->type_name("RUN.h5");
  app.add_option("--join", options.line.join,
                 "take part in a run as spot ranks: its directory, or the line in DIR/join")
      ->type_name("WHERE");
  app.add_option("-p,--prompt", options.line.prompts, "sample: a prompt; may be given several times")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("-d,--directory", options.line.directory, "where results go, as run/directory=DIR")->type_name("DIR");
  app.add_option("-t,--time", options.line.time_limit, "stop in time with a checkpoint, as run/time_limit=hh:mm:ss")
      ->type_name("hh:mm:ss");
  app.add_flag("--version", options.version, "show the version");
  app.add_flag("-h,--help", options.help, "show this");
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

using Task = CommandLine::Task;

constexpr std::pair<const char*, Task> kTasks[] = {{"pretrain", Task::kPretrain},
                                                   {"sample", Task::kSample},
                                                   {"calibrate", Task::kCalibrate},
                                                   {"study", Task::kStudyRanks}};

std::string NameOf(Task task) {
  const auto* found =
      std::find_if(std::begin(kTasks), std::end(kTasks), [&](const auto& entry) { return entry.second == task; });
  return found == std::end(kTasks) ? "a training run" : found->first;
}

// The words are put into task, input and overrides.
void SortWords(const std::vector<std::string>& words, CommandLine& line) {
  std::span<const std::string> left = words;
  for (const auto& [name, task] : kTasks) {
    if (left.empty() || left[0] != name) continue;
    line.task = task;
    left = left.subspan(1);
    break;
  }
  if (line.task == Task::kStudyRanks) {
    if (left.empty() || left[0] != "ranks") throw UserError("command line: what can be studied is ranks: study ranks");
    left = left.subspan(1);
  }
  for (const std::string& word : left) {
    if (word.find('=') != std::string::npos) {
      ParseOverride(word);
      line.overrides.push_back(word);
    } else if (line.input.empty()) {
      line.input = word;
    } else {
      throw UserError(
          fmt::format("command line: '{}' after the input file {} is neither an option nor an override "
                      "(section/key=value, without spaces)",
                      word, line.input));
    }
  }
}

CommandLine::Mode ChooseMode(const CLI::App& app, const Options& options) {
  using Mode = CommandLine::Mode;
  if (options.help) return Mode::kHelp;
  std::vector<std::pair<const char*, Mode>> chosen;
  if (options.check) chosen.emplace_back("--check", Mode::kCheck);
  if (options.dry_run) chosen.emplace_back("--dry-run", Mode::kDryRun);
  if (options.show_config) chosen.emplace_back("--show-config", Mode::kShowConfig);
  if (options.version) chosen.emplace_back("--version", Mode::kVersion);
  if (app.count("--describe") > 0) chosen.emplace_back("--describe", Mode::kDescribe);
  if (app.count("--join") > 0) chosen.emplace_back("--join", Mode::kJoin);
  if (app.count("--list") > 0) {
    if (options.list != "rewards") {
      throw UserError(fmt::format("command line: --list {}: what can be listed is rewards", options.list));
    }
    chosen.emplace_back("--list", Mode::kListRewards);
  }
  if (chosen.empty()) return Mode::kRun;
  if (chosen.size() > 1) {
    throw UserError(
        fmt::format("command line: {} and {} exclude each other; give one", chosen[0].first, chosen[1].first));
  }
  return chosen[0].second;
}

bool NeedsInput(CommandLine::Mode mode) {
  using Mode = CommandLine::Mode;
  return mode == Mode::kRun || mode == Mode::kCheck || mode == Mode::kDryRun;
}

// Options and tasks that do not go together.
void CheckTask(const CommandLine& line) {
  using Mode = CommandLine::Mode;
  const bool trains = line.task == Task::kTrain, plain = trains || line.task == Task::kPretrain;
  if (line.mode == Mode::kJoin &&
      (!line.input.empty() || !line.overrides.empty() || !line.restart.empty() || !line.replay.empty() || !trains)) {
    throw UserError("command line: --join DIR takes nothing else: the settings are those of the run");
  }
  if (!plain && line.mode != Mode::kRun) {
    throw UserError(fmt::format("command line: {} takes neither --check nor --dry-run", NameOf(line.task)));
  }
  if ((line.task == Task::kSample || line.task == Task::kCalibrate) && !line.restart.empty()) {
    throw UserError(fmt::format("command line: {} takes no -r", NameOf(line.task)));
  }
  if (line.task == Task::kStudyRanks && (line.restart.empty() || !line.input.empty())) {
    throw UserError("command line: study ranks takes the checkpoints of a run, and its input: study ranks -r DIR");
  }
  if (line.task != Task::kSample && !line.prompts.empty()) {
    throw UserError("command line: --prompt belongs to `spotlight sample INPUT.ini`");
  }
  if (!line.replay.empty() && !trains) {
    throw UserError(fmt::format("command line: --replay belongs to a training run, not to {}", NameOf(line.task)));
  }
}

}  // namespace

CommandLine ParseCommandLine(int argc, const char* const* argv) {
  if (argc <= 1) throw UserError(kUsage);
  CLI::App app;
  Options options;
  AddOptions(app, options);
  app.allow_extras();  // to name the nearest option
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw UserError(fmt::format("command line: {} (spotlight --help lists the options)", error.what()));
  }
  if (const std::vector<std::string> unknown = app.remaining(); !unknown.empty()) {
    const std::string name = unknown[0].substr(0, unknown[0].find('='));
    const std::string nearest = NearestName(name, OptionNames(app));
    throw UserError(fmt::format("command line: unknown option {};{} (spotlight --help lists the options)", unknown[0],
                                nearest.empty() ? "" : " did you mean " + nearest + "?"));
  }
  CommandLine line = options.line;
  SortWords(options.words, line);
  line.mode = ChooseMode(app, options);
  CheckTask(line);
  if (app.count("--directory") > 0) line.overrides.push_back("run/directory=" + line.directory);
  if (app.count("--time") > 0) {
    if (ParseDuration(line.time_limit) < 0) {
      throw UserError(fmt::format("command line: -t {} is not a time; write hh:mm:ss", line.time_limit));
    }
    line.overrides.push_back("run/time_limit=" + line.time_limit);
  }
  if (!line.replay.empty()) {
    RequireInputFile(line.replay);
    line.overrides.push_back("explore/replay=" + line.replay);
  }
  if (!NeedsInput(line.mode)) return line;
  if (!line.input.empty()) {
    RequireInputFile(line.input);
  } else if (line.mode != CommandLine::Mode::kRun && !(line.restart.empty() && line.replay.empty())) {
    throw UserError(
        "command line: --check and --dry-run take an input file; of a run that is to go on that is "
        "DIR/input.resolved.ini");
  } else if (line.restart.empty() && line.replay.empty()) {
    throw UserError(fmt::format("command line: there is no input file\n{}", kUsage));
  }
  return line;
}

std::string HelpText() {
  CLI::App app;
  Options options;
  AddOptions(app, options);
  std::string text = fmt::format("{}\n\noptions:\n", kUsage);
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    text += fmt::format("  {:<28} {}\n", option->get_name(false, true) + " " + option->get_type_name(),
                        option->get_description());
  }
  text +=
      "\nPrecedence: defaults < input < command line. Exit codes: 0 finished, 1 internal error,\n"
      "2 wrong input or usage, 74 file system, 75 stopped early with a good checkpoint: -r latest goes on.\n";
  return text;
}

}  // namespace spotlight
