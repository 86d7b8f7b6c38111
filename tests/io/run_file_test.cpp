#include "io/run_file.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <thread>

#include "base/error.hpp"
#include "full_disk.hpp"
#include "io/h5.hpp"
#include "io/history_log.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const std::vector<Column> kColumns = {{"reward_mean", "1", "mean reward"}, {"time_step_s", "s", "time of the step"}};

RolloutRow Row(std::int64_t step, double reward) {
  RolloutRow row;
  row.step = step;
  row.prompt_id = ~0ull - 1;
  row.seed = 1ull << 63;
  row.reward = reward;
  row.trained = true;
  row.terms = {reward, -reward};
  return row;
}

class RunFileTest : public IoTest {
 protected:
  RunFileTest() : path_(Path("run.h5")), run_(path_) {
    run_.Create({{"software", "spotlight"}, {"input", std::string(100000, 'x')}}, kColumns, {"geneval", "alpha"});
  }
  std::string path_;
  RunFile run_;
};

TEST_F(RunFileTest, HistoryHasScalesUnitsAndNan) {
  run_.AppendHistory(1, {{"reward_mean", 0.25}, {"time_step_s", 2}});
  run_.AppendHistory(2, {{"reward_mean", 0.5}});
  const H5File file(path_, H5File::Mode::kRead);
  EXPECT_THAT(file.Read<std::int64_t>("/history/step"), ElementsAre(1, 2));
  EXPECT_THAT(file.Read<double>("/history/reward_mean"), ElementsAre(0.25, 0.5));
  EXPECT_TRUE(std::isnan(file.Read<double>("/history/time_step_s")[1]));
  EXPECT_EQ(file.GetText("/history/time_step_s", "units"), "s");
  EXPECT_EQ(file.GetText("/history/time_step_s", "long_name"), "time of the step");
  EXPECT_TRUE(file.HasAttribute("/history/reward_mean", "DIMENSION_LIST"));
  EXPECT_TRUE(file.HasAttribute("/history/step", "REFERENCE_LIST"));
  EXPECT_EQ(file.GetText("/", "input").size(), 100000u);
  EXPECT_THROW(run_.AppendHistory(3, {{"reward_meen", 1}}), InternalError);
  EXPECT_THAT(Listing(), ElementsAre("run.h5"));
}

TEST_F(RunFileTest, RolloutsAndRewardsAreAligned) {
  run_.AppendIteration(1, {}, {.rollouts = {Row(1, 0.5), Row(1, 0.75)}});
  run_.AppendIteration(2, {}, {.rollouts = {Row(2, 1)}});
  const H5File file(path_, H5File::Mode::kRead);
  EXPECT_THAT(file.Read<std::int64_t>("/rollouts/row"), ElementsAre(0, 1, 2));
  EXPECT_THAT(file.Read<std::int64_t>("/rollouts/step"), ElementsAre(1, 1, 2));
  EXPECT_THAT(file.Read<std::uint64_t>("/rollouts/prompt_id"), ElementsAre(~0ull - 1, ~0ull - 1, ~0ull - 1));
  EXPECT_THAT(file.Read<std::uint64_t>("/rollouts/seed"), ElementsAre(1ull << 63, 1ull << 63, 1ull << 63));
  EXPECT_THAT(file.Read<std::uint8_t>("/rollouts/trained"), ElementsAre(1, 1, 1));
  EXPECT_THAT(file.Read<double>("/rewards/geneval"), ElementsAre(0.5, 0.75, 1));
  EXPECT_THAT(file.Read<double>("/rewards/alpha"), ElementsAre(-0.5, -0.75, -1));
  for (const std::string& name : file.Children("/rollouts")) {
    EXPECT_EQ(file.Dimensions("/rollouts/" + name), Shape{3}) << name;
    EXPECT_TRUE(file.HasAttribute("/rollouts/" + name, name == "row" ? "REFERENCE_LIST" : "DIMENSION_LIST")) << name;
  }
}

TEST_F(RunFileTest, WhatWasExploredComesBack) {
  const ExploredRow kept{.step = 4,
                         .prompt_id = ~0ull,
                         .prompt_index = 7,
                         .seed = 1ull << 63,
                         .real_steps = 6,
                         .rank = 3,
                         .weight_version = 4,
                         .reward = 0.25,
                         .kept = true,
                         .control = true};
  run_.AppendIteration(4, {}, {.explored = {kept, {.step = 4, .seed = 9}}});
  run_.AppendIteration(5, {}, {.decisions = {{.step = 5, .seeds = 8, .real_steps = 6, .feasible = true, .score = 2}}});
  EXPECT_TRUE(run_.Holds("/explored"));
  EXPECT_FALSE(run_.Holds("/elsewhere"));
  EXPECT_EQ(run_.Steps(), 2);
  EXPECT_EQ(run_.ReadAttribute("software"), "spotlight");
  EXPECT_THAT(run_.AttributeNames(), ElementsAre("input", "software"));
  const std::vector<ExploredRow> rows = run_.ReadExplored();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].step, 4);
  EXPECT_EQ(rows[0].prompt_id, kept.prompt_id);
  EXPECT_EQ(rows[0].prompt_index, 7);
  EXPECT_EQ(rows[0].seed, kept.seed);
  EXPECT_EQ(rows[0].real_steps, 6);
  EXPECT_EQ(rows[0].rank, 3);
  EXPECT_EQ(rows[0].weight_version, 4U);
  EXPECT_EQ(rows[0].reward, 0.25);
  EXPECT_TRUE(rows[0].kept && rows[0].control);
  EXPECT_FALSE(rows[1].kept || rows[1].control);
  const H5File file(path_, H5File::Mode::kRead);
  EXPECT_THAT(file.Read<double>("/decisions/score"), ElementsAre(2));
  EXPECT_THAT(file.Read<std::uint8_t>("/decisions/feasible"), ElementsAre(1));
  EXPECT_EQ(file.GetText("/decisions/budget_s", "units"), "s");
  EXPECT_TRUE(file.HasAttribute("/explored/seed", "DIMENSION_LIST"));
}

TEST_F(RunFileTest, PromptsAttributesAndImages) {
  Prompt prompt;
  prompt.text = "ein Bär";
  prompt.id = PromptId(prompt.text);
  run_.WritePrompts({prompt, prompt});
  run_.WritePrompts({prompt});
  run_.SetAttributes({{"software", "other"}, {"restart_count", "2"}});
  const Image image{1, 2, {0, 0.5f, 1, 2, -1, 0.1f}};
  run_.AppendImages(120, {image, image, image}, {"a", "b", "c"});
  run_.AppendImages(120, {image, image}, {"a", "größer"});
  const H5File file(path_, H5File::Mode::kRead);
  EXPECT_THAT(file.ReadTexts("/prompts/text"), ElementsAre("ein Bär"));
  EXPECT_THAT(file.Read<std::uint64_t>("/prompts/id"), ElementsAre(prompt.id));
  EXPECT_EQ(file.GetText("/", "software"), "other");
  EXPECT_EQ(file.GetText("/", "restart_count"), "2");
  EXPECT_EQ(file.Dimensions("/samples/step_000120"), (Shape{2, 1, 2, 3}));
  EXPECT_THAT(file.Read<std::uint8_t>("/samples/step_000120"),
              ElementsAre(0, 128, 255, 255, 0, 26, 0, 128, 255, 255, 0, 26));
  EXPECT_EQ(file.GetText("/samples/step_000120", "CLASS"), "IMAGE");
  EXPECT_THAT(file.ReadTexts("/samples/step_000120_captions"), ElementsAre("a", "größer"));
}

TEST_F(RunFileTest, TruncateDropsLaterRowsOnly) {
  const Image image{1, 1, {0, 0, 0}};
  for (int step = 1; step <= 3; ++step) {
    run_.AppendIteration(step, {{"reward_mean", step}},
                         {.rollouts = {Row(step, step), Row(step, step)},
                          .explored = {{.step = step}},
                          .decisions = {{.step = step}, {.step = step}}});
    run_.AppendImages(step, {image}, {""});
  }
  run_.TruncateAfter(2);
  run_.AppendHistory(3, {{"reward_mean", 30}});
  const H5File file(path_, H5File::Mode::kRead);
  EXPECT_THAT(file.Read<std::int64_t>("/history/step"), ElementsAre(1, 2, 3));
  EXPECT_THAT(file.Read<double>("/history/reward_mean"), ElementsAre(1, 2, 30));
  EXPECT_THAT(file.Read<double>("/rewards/geneval"), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(file.Read<std::int64_t>("/rollouts/row"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(file.Read<std::int64_t>("/explored/step"), ElementsAre(1, 2));
  EXPECT_THAT(file.Read<std::int64_t>("/decisions/step"), ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(file.Children("/samples"),
              UnorderedElementsAre("step_000001", "step_000001_captions", "step_000002", "step_000002_captions"));
}

TEST_F(RunFileTest, AKillLosesNothingAcknowledged) {
  for (int round = 0; round < 8; ++round) {
    run_.TruncateAfter(0);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (std::int64_t step = 1;; ++step) {
        run_.AppendIteration(step, {{"reward_mean", static_cast<double>(step)}},
                             {.rollouts = {Row(step, 1), Row(step, 2)}});
        if (write(ends[1], &step, sizeof(step)) < 0) std::_Exit(1);
      }
    }
    close(ends[1]);
    std::int64_t acknowledged = 0;
    std::int64_t step = 0;
    while (acknowledged < 3 && read(ends[0], &step, sizeof(step)) == sizeof(step)) acknowledged = step;
    std::this_thread::sleep_for(std::chrono::microseconds(700 * round));
    kill(child, SIGKILL);
    while (read(ends[0], &step, sizeof(step)) == sizeof(step)) acknowledged = step;
    close(ends[0]);
    waitpid(child, nullptr, 0);

    const H5File file(path_, H5File::Mode::kRead);
    const std::int64_t rows = file.Dimensions("/history/step")[0];
    EXPECT_GE(acknowledged, 3);
    EXPECT_GE(rows, acknowledged);
    EXPECT_EQ(file.Dimensions("/history/reward_mean")[0], rows);
    EXPECT_EQ(file.Read<double>("/history/reward_mean").back(), static_cast<double>(rows));
    EXPECT_GE(file.Dimensions("/rollouts/row")[0], 2 * acknowledged);
    EXPECT_EQ(file.Dimensions("/rewards/alpha"), file.Dimensions("/rollouts/row"));
    EXPECT_EQ(file.Dimensions("/rollouts/step"), file.Dimensions("/rollouts/row"));
  }
}

TEST_F(RunFileTest, FullDiskIsReportedAndHarmless) {
  run_.AppendHistory(1, {{"reward_mean", 1}});
  const auto size = std::filesystem::file_size(path_);
  for (const rlim_t limit : {size / 2, size + 1024}) {  // while copying; while HDF5 writes
    const std::string message = FileErrorOnFullDisk(
        limit, [&] { run_.AppendIteration(2, {}, {.rollouts = std::vector<RolloutRow>(5000, Row(1, 1))}); });
    EXPECT_THAT(message, HasSubstr("run.h5"));
    EXPECT_THAT(message, HasSubstr("File too large"));
    EXPECT_THAT(message, ::testing::Not(HasSubstr("died")));
  }
  EXPECT_THAT(Listing(), ElementsAre("run.h5"));
  EXPECT_THAT(H5File(path_, H5File::Mode::kRead).Read<std::int64_t>("/history/step"), ElementsAre(1));
}

TEST_F(RunFileTest, ErrorsNameFileAndObject) {
  const std::string text = WriteFile("text.h5", "not an HDF5 file");
  ExpectError<FileError>([&] { H5File file(text, H5File::Mode::kRead); }, {text, "cannot open as HDF5"});
  ExpectError<FileError>([&] { H5File file(Path("none.h5"), H5File::Mode::kRead); }, {"none.h5", "No such file"});
  const H5File file(path_, H5File::Mode::kRead);
  ExpectError<FileError>([&] { file.Read<double>("/history/nothing"); }, {path_, "/history/nothing", "cannot open"});
  ExpectError<FileError>([&] { RunFile(Path("no/run.h5")).Create({}, {}, {}); }, {"no/", "cannot create"});
}

TEST_F(IoTest, HistoryLogIsOneLineAStep) {
  const std::string path = Path("history.jsonl");
  HistoryLog log(path);
  log.Append(1, {{"b", 0.5}, {"a", std::nan("")}});
  log.Append(2, {{"a", 2}});
  EXPECT_EQ(ReadFile(path), "{\"step\":1,\"a\":null,\"b\":0.5}\n{\"step\":2,\"a\":2.0}\n");
  log.TruncateAfter(1);
  EXPECT_EQ(ReadFile(path), "{\"step\":1,\"a\":null,\"b\":0.5}\n");
  ExpectError<FileError>([] { HistoryLog("/dev/full").Append(1, {}); }, {"/dev/full", "No space left"});
}

TEST_F(IoTest, HistoryLogCutsAnUnfinishedLine) {
  const std::string path = WriteFile("history.jsonl", "{\"step\":1}\n{\"step\":2,\"a");
  HistoryLog log(path);
  log.Append(2, {});
  EXPECT_EQ(ReadFile(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST_F(IoTest, HistoryLogDropsLinesThatAreNone) {
  const std::string path = WriteFile("history.jsonl", "{\"step\":\"one\"}\n{}\n3\n{\"step\":1}\n{\"step\":2}\n");
  HistoryLog(path).TruncateAfter(1);
  EXPECT_EQ(ReadFile(path), "{\"step\":1}\n");
}

}  // namespace
}  // namespace spotlight
