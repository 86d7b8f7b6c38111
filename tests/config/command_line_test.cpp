// Modes, words and options, and the message of each usage error.
#include "config/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "user_error.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Mode = CommandLine::Mode;
using Task = CommandLine::Task;

CommandLine Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "spotlight");
  return ParseCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

std::string ErrorOf(const std::vector<const char*>& arguments) {
  return UserErrorOf([&] { Parse(arguments); });
}

class CommandLineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() / (std::string("spotlight_command_") + test->name() + ".ini");
    std::ofstream(path_) << "";
    input_ = path_.string();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::filesystem::path path_;
  std::string input_;
};

TEST_F(CommandLineTest, InputAndOverrides) {
  const CommandLine line = Parse({"train/lr=1e-4", input_.c_str(), "prompts/tag_weights=counting:2, colors:1"});
  EXPECT_EQ(line.mode, Mode::kRun);
  EXPECT_EQ(line.task, Task::kTrain);
  EXPECT_EQ(line.input, input_);
  EXPECT_THAT(line.overrides, ElementsAre("train/lr=1e-4", "prompts/tag_weights=counting:2, colors:1"));
}

TEST_F(CommandLineTest, OptionsThatAreOverrides) {
  const CommandLine line = Parse({input_.c_str(), "-d", "out", "-t", "01:00:00", "run/seed=1"});
  EXPECT_EQ(line.directory, "out");
  EXPECT_EQ(line.time_limit, "01:00:00");
  EXPECT_THAT(line.overrides, ElementsAre("run/seed=1", "run/directory=out", "run/time_limit=01:00:00"));
  EXPECT_THAT(ErrorOf({input_.c_str(), "--time", "90"}), HasSubstr("-t 90 is not a time; write hh:mm:ss"));
}

TEST_F(CommandLineTest, Modes) {
  const char* input = input_.c_str();
  EXPECT_EQ(Parse({"pretrain", input}).task, Task::kPretrain);
  EXPECT_EQ(Parse({"calibrate", input}).task, Task::kCalibrate);
  EXPECT_EQ(Parse({"calibrate", input}).input, input_);
  EXPECT_EQ(Parse({input}).task, Task::kTrain);
  EXPECT_EQ(Parse({input, "--check"}).mode, Mode::kCheck);
  EXPECT_EQ(Parse({"--dry-run", input}).mode, Mode::kDryRun);
  EXPECT_EQ(Parse({"--show-config"}).mode, Mode::kShowConfig);
  EXPECT_EQ(Parse({"--version"}).mode, Mode::kVersion);
  EXPECT_EQ(Parse({"-h"}).mode, Mode::kHelp);
  EXPECT_EQ(Parse({"--list", "rewards"}).mode, Mode::kListRewards);
  EXPECT_EQ(Parse({"--describe"}).mode, Mode::kDescribe);
  EXPECT_EQ(Parse({"--describe"}).describe_section, "");
  EXPECT_EQ(Parse({"--describe", "train"}).describe_section, "train");
  const CommandLine both = Parse({"pretrain", input, "--check"});
  EXPECT_EQ(both.mode, Mode::kCheck);
  EXPECT_EQ(both.task, Task::kPretrain);
  EXPECT_THAT(ErrorOf({"calibrate", input, "--check"}), HasSubstr("calibrate takes neither --check"));
  EXPECT_THAT(ErrorOf({"calibrate", input, "-r", "latest"}), HasSubstr("calibrate takes no -r"));
  EXPECT_THAT(ErrorOf({input, "calibrate"}), HasSubstr("'calibrate' after the input file"));
}

TEST_F(CommandLineTest, RestartNeedsNoInput) {
  const CommandLine line = Parse({"-r", "latest"});
  EXPECT_EQ(line.mode, Mode::kRun);
  EXPECT_EQ(line.restart, "latest");
  EXPECT_EQ(line.input, "");
  EXPECT_EQ(Parse({input_.c_str(), "--restart", "run/a/checkpoints/step_000010"}).restart,
            "run/a/checkpoints/step_000010");
}

TEST_F(CommandLineTest, SampleTakesPrompts) {
  const char* input = input_.c_str();
  const CommandLine line = Parse({"sample", input, "-p", "a red cat", "run/seed=1", "--prompt", "two dogs"});
  EXPECT_EQ(line.mode, Mode::kRun);
  EXPECT_EQ(line.task, Task::kSample);
  EXPECT_THAT(line.prompts, ElementsAre("a red cat", "two dogs"));
  EXPECT_THAT(line.overrides, ElementsAre("run/seed=1"));
  EXPECT_EQ(Parse({"sample", input}).task, Task::kSample);
  EXPECT_THAT(ErrorOf({input, "--prompt", "a cat"}), HasSubstr("--prompt belongs to `spotlight sample"));
  EXPECT_THAT(ErrorOf({"sample", input, "--check"}), HasSubstr("sample takes neither --check"));
  EXPECT_THAT(ErrorOf({"sample", input, "-r", "latest"}), HasSubstr("sample takes no -r"));
}

TEST_F(CommandLineTest, AStudyIsOfARunsCheckpoints) {
  const CommandLine line = Parse({"study", "ranks", "-r", "run/mine", "study/seeds=8"});
  EXPECT_EQ(line.task, Task::kStudyRanks);
  EXPECT_EQ(line.restart, "run/mine");
  EXPECT_THAT(line.overrides, ElementsAre("study/seeds=8"));
  EXPECT_THAT(ErrorOf({"study", "-r", "run/mine"}), HasSubstr("study ranks"));
  EXPECT_THAT(ErrorOf({"study", "ranks"}), HasSubstr("study ranks -r DIR"));
  EXPECT_THAT(ErrorOf({"study", "ranks", input_.c_str(), "-r", "run/mine"}), HasSubstr("and its input"));
}

TEST_F(CommandLineTest, AReplayNamesItsRecording) {
  const std::string recording = input_;  // any file that is there
  const CommandLine line = Parse({"--replay", recording.c_str(), "-d", "again"});
  EXPECT_EQ(line.replay, recording);
  EXPECT_EQ(line.input, "");
  EXPECT_THAT(line.overrides, ElementsAre("run/directory=again", "explore/replay=" + recording));
  EXPECT_THAT(ErrorOf({"--replay", "no/run.h5"}), HasSubstr("no/run.h5"));
  EXPECT_THAT(ErrorOf({"sample", input_.c_str(), "--replay", recording.c_str()}), HasSubstr("not to sample"));
}

TEST_F(CommandLineTest, UsageErrors) {
  const std::string usage = ErrorOf({});
  EXPECT_THAT(usage, HasSubstr("usage: spotlight INPUT.ini"));
  EXPECT_EQ(std::count(usage.begin(), usage.end(), '\n'), 7) << "eight lines";
  const char* input = input_.c_str();
  EXPECT_THAT(ErrorOf({"--check"}), HasSubstr("there is no input file\nusage:"));
  EXPECT_THAT(ErrorOf({"-r", "latest", "--check"}), HasSubstr("take an input file"));
  EXPECT_THAT(ErrorOf({"-r", "latest", "--dry-run"}), HasSubstr("DIR/input.resolved.ini"));
  EXPECT_THAT(ErrorOf({input, "--dryrun"}), AllOf(HasSubstr("unknown option --dryrun"), HasSubstr("mean --dry-run?")));
  EXPECT_THAT(ErrorOf({input, "--restrat=latest"}), HasSubstr("did you mean --restart?"));
  EXPECT_THAT(ErrorOf({input, "--check", "--dry-run"}), HasSubstr("--check and --dry-run exclude each other"));
  EXPECT_THAT(ErrorOf({input, "-r"}), HasSubstr("--restart"));
  EXPECT_THAT(ErrorOf({"--list", "models"}), HasSubstr("--list models"));
  EXPECT_THAT(ErrorOf({input, "lr=3e-4"}), HasSubstr("did you mean train/lr=3e-4?"));
  EXPECT_THAT(ErrorOf({input, "train/lr", "=", "3e-4"}), HasSubstr("'train/lr' after the input file"));
}

TEST_F(CommandLineTest, MissingInputNamesTheNearest) {
  std::string wrong = input_;
  wrong.erase(wrong.size() - 5, 1);
  EXPECT_THAT(ErrorOf({wrong.c_str()}), AllOf(HasSubstr("no input file " + wrong), HasSubstr("mean " + input_ + "?")));
}

TEST(HelpText, FitsOneScreenAndNamesEveryOption) {
  const std::string help = HelpText();
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 28);
  for (const char* option : {"--check", "--dry-run", "--show-config", "--describe", "--list", "-r,--restart",
                             "--replay", "--join", "-d,--directory", "-t,--time", "--version", "-h,--help"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
  std::size_t begin = 0;
  for (std::size_t end = help.find('\n'); end != std::string::npos; begin = end + 1, end = help.find('\n', begin)) {
    EXPECT_LE(end - begin, 120u) << help.substr(begin, end - begin);
  }
}

}  // namespace
}  // namespace spotlight
