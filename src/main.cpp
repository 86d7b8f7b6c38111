// The program: start, read the command line, do what it says, say why it stopped.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <iostream>
#include <optional>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/world.hpp"
#include "config/command_line.hpp"
#include "config/dump.hpp"
#include "driver/build_info.hpp"
#include "driver/calibrate.hpp"
#include "driver/dry_run.hpp"
#include "driver/failure.hpp"
#include "driver/job.hpp"
#include "driver/join.hpp"
#include "driver/pretrain.hpp"
#include "driver/sample.hpp"
#include "driver/study.hpp"
#include "kernels/runtime.hpp"
#include "reward/reward.hpp"

namespace spotlight {
namespace {

using Mode = CommandLine::Mode;

// What needs no world: answers from one process, whoever started it.
std::optional<int> Answer(const CommandLine& command) {
  switch (command.mode) {
    case Mode::kHelp:
      std::cout << HelpText();
      return kExitFinished;
    case Mode::kVersion:
      std::cout << VersionText() << "\n";
      return kExitFinished;
    case Mode::kShowConfig:
      std::cout << BuildText();
      return kExitFinished;
    case Mode::kDescribe:
      std::cout << DescribeSection(command.describe_section);
      return kExitFinished;
    case Mode::kListRewards:
      std::cout << DescribeRewards();
      return kExitFinished;
    default:
      return std::nullopt;
  }
}

int Execute(const CommandLine& command, World& world, const std::string& command_text) {
  using Task = CommandLine::Task;
  const bool pretrains = command.task == Task::kPretrain;
  if (command.mode == Mode::kCheck) return pretrains ? CheckPretrainJob(command) : CheckJob(command, world);
  if (command.mode == Mode::kDryRun) return pretrains ? CheckPretrainJob(command) : DryRun(command, world);
  if (command.mode == Mode::kJoin) return RunJoin(command, world);
  switch (command.task) {
    case Task::kPretrain:
      return RunPretrain(command, world);
    case Task::kSample:
      return RunSample(command, world);
    case Task::kCalibrate:
      return RunCalibrate(command, world);
    case Task::kStudyRanks:
      return RunStudy(command, world);
    default:
      return RunJob(command, world, command_text);
  }
}

int Main(int argc, char** argv) {
  const std::string command_text = fmt::format("{}", fmt::join(argv, argv + argc, " "));

  // 1. the world: MPI if mpirun started us
  World world(&argc, &argv);
  int code = kExitFinished;
  std::string mistake;  // why this rank gives up
  try {
    try {
      // 2. the command line
      const CommandLine command = ParseCommandLine(argc, argv);
      if (const std::optional<int> answered = Answer(command)) {
        code = *answered;
      } else {
        // 3. the job
        code = Execute(command, world, command_text);
      }
    } catch (const UserError& error) {
      mistake = error.what();
      code = kExitUsage;
    } catch (const FileError& error) {
      mistake = error.what();
      code = kExitFile;
    } catch (const std::filesystem::filesystem_error& error) {
      const Failure failure = DescribeFailure(error);
      mistake = failure.text;
      code = failure.exit_code;
    }
    // 4. one exit code for all ranks, and one message: all ranks read the same files and have the same complaint
    if (world.parted()) {
      if (!mistake.empty()) std::cerr << "spotlight: " << ProcessName() << ": " << mistake << "\n";
      StopKernels();
      world.Leave(code);
    }
    if (!mistake.empty() && world.rank() == 0) std::cerr << "spotlight: " << mistake << "\n";
    code = world.AgreeExit(code);
    if (!mistake.empty() && world.rank() != 0 && world.reports()) {
      std::cerr << "spotlight: " << ProcessName() << ": " << mistake << "\n";
    }
  } catch (const WorldEnding& ending) {
    code = ending.code();
  } catch (const CoordinatorLost& lost) {
    LogWarning(lost.what());  // into the log of this rank; a trainer tells the user
    if (world.trainer_index() == 0) {
      // Also where the coordinator has just left because of another rank: then its own line says so.
      std::cerr << "spotlight: " << lost.what() << "; unless it said why, it was killed; go on with -r latest\n";
    }
    world.LeaveAfterLoss(kExitStopped);
  } catch (const PeerLost& lost) {
    LogWarning(lost.what());
    world.LeaveAfterLoss(kExitStopped);
  } catch (const std::exception& error) {
    std::cerr << "spotlight: internal error on " << ProcessName() << ": " << error.what() << "\n";
    world.Abort(kExitInternal);
  }
  StopKernels();
  return world.Finish(code);
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) { return spotlight::Main(argc, argv); }
