// One run a directory: the lock, what may be begun where, and what -r finds.
#include "record/run_directory.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <set>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "tests/io/io_test.hpp"

extern char** environ;  // NOLINT: POSIX

namespace spotlight {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class RunDirectoryTest : public IoTest {
 protected:
  RunDirectoryTest() : before_(std::filesystem::current_path()) { std::filesystem::current_path(folder_); }
  ~RunDirectoryTest() override { std::filesystem::current_path(before_); }

  // A checkpoint of the run in `directory`.
  static void Checkpoint(const std::string& directory, int step, const std::string& state_file) {
    StateFile().Save(BeginCheckpoint(directory, step) + "/" + state_file);
    CommitCheckpoint(directory, step, 10, {state_file});
  }

  static CommandLine Resuming(const std::string& restart, const std::string& directory = "") {
    CommandLine command;
    command.restart = restart;
    command.directory = directory;
    if (!directory.empty()) command.overrides = {"run/directory=" + directory};
    return command;
  }

  std::filesystem::path before_;
};

TEST_F(RunDirectoryTest, OneRunAtATime) {
  {
    const RunLock lock = CreateRunDirectory("run");
    ExpectError<UserError>([] { RunLock("run"); },
                           {"a run is going on in run (", "process " + std::to_string(getpid()), "-d DIR"});
  }
  RunLock("run");
}

TEST_F(RunDirectoryTest, AChildThatOutlivesTheRunDoesNotKeepTheLock) {
  pid_t child = 0;
  {
    const RunLock lock = CreateRunDirectory("run");
    char name[] = "sleep", seconds[] = "60";
    char* words[] = {name, seconds, nullptr};
    ASSERT_EQ(posix_spawnp(&child, name, nullptr, nullptr, words, environ), 0);
  }
  EXPECT_NO_THROW(RunLock("run"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(RunDirectoryTest, GeneratedNamesAreTakenOnce) {
  std::set<std::string> names;
  for (int i = 0; i < 4; ++i) {  // most of them in one second
    const std::string name = RunDirectory(Config{}, "inputs/geneval.ini");
    EXPECT_THAT(name, StartsWith("run/geneval-20"));
    EXPECT_TRUE(std::filesystem::is_directory(name));
    names.insert(name);
  }
  EXPECT_EQ(names.size(), 4U);
}

TEST_F(RunDirectoryTest, ANewRunDeletesNothing) {
  Checkpoint("pretrained", 100, "pretrain.h5");
  ExpectError<UserError>([] { CreateRunDirectory("pretrained"); }, {"holds a run already"});
  WriteFile("pretrained/run.h5", "");
  ExpectError<UserError>([] { CreateRunDirectory("pretrained"); }, {"holds a run already"});
  EXPECT_TRUE(HasCheckpoint("pretrained", 100));
}

TEST_F(RunDirectoryTest, LatestIsOfTheSameKind) {
  Checkpoint("run/a", 3, "coordinator.h5");
  Checkpoint("run/b", 100, "pretrain.h5");
  std::filesystem::create_directories("run/c");
  EXPECT_EQ(FindRestart(Resuming("latest"), "coordinator.h5")->directory, "run/a");
  EXPECT_EQ(FindRestart(Resuming("latest"), "pretrain.h5")->directory, "run/b");
  ExpectError<UserError>([] { FindRestart(Resuming("run/b"), "coordinator.h5"); },
                         {"run/b/checkpoints/step_000100 has no coordinator.h5", "spotlight pretrain -r"});
}

TEST_F(RunDirectoryTest, LatestPassesOverWhatItMayNotLookAt) {
  if (geteuid() == 0) GTEST_SKIP() << "root may look everywhere";
  Checkpoint("run/a", 3, "coordinator.h5");
  Checkpoint("run/b", 4, "coordinator.h5");
  std::filesystem::permissions("run/b", std::filesystem::perms::none);
  EXPECT_EQ(FindRestart(Resuming("latest"), "coordinator.h5")->directory, "run/a");
  std::filesystem::permissions("run/b", std::filesystem::perms::owner_all);
}

TEST_F(RunDirectoryTest, ARunGoesOnWhereItIs) {
  Checkpoint("a", 3, "coordinator.h5");
  const std::string input = "[run]\ndirectory = before/it/was/moved\n";
  EXPECT_EQ(ResumedConfig(Resuming("a"), input, "a").run.directory, "a");
  EXPECT_EQ(ResumedConfig(Resuming("latest", "./a/"), input, "a").run.directory, "a");
  ExpectError<UserError>([&] { ResumedConfig(Resuming("a/checkpoints/step_000003", "branch"), input, "a"); },
                         {"-r goes on in a", "run/directory (command line) = branch", "copy"});
  CommandLine command = Resuming("a");
  command.input = WriteFile("input.ini", "[run]\ndirectory = b\n");
  ExpectError<UserError>([&] { ResumedConfig(command, input, "a"); }, {"run/directory (", "input.ini:2) = b"});
}

TEST_F(RunDirectoryTest, WhatAnotherRunHasLeftMeanwhileIsSeen) {
  Checkpoint("a", 3, "coordinator.h5");
  const Restart restart = *FindRestart(Resuming("a"), "coordinator.h5");
  { const RunLock lock = ReopenRunDirectory(restart); }
  Checkpoint("a", 4, "coordinator.h5");
  ExpectError<UserError>([&] { ReopenRunDirectory(restart); }, {"another run has just worked in a"});
}

}  // namespace
}  // namespace spotlight
