#include "record/run_state.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.hpp"
#include "io/state_file.hpp"

namespace spotlight {
namespace {

TEST(RunState, ComesBackAsItWas) {
  const std::string folder = testing::TempDir() + "run_state_test";
  std::filesystem::create_directories(folder);
  RunState state;
  state.next_iteration = 7;
  state.plan = {.iteration = 7, .prompts = {3, 1}, .window_begin = 1, .window_end = 4};
  state.plan.groups = {{{1ULL << 63U, 5}, {0.25, kUnknown}, {1, 0}, 0.5, 0.125}, {{9}, {1.0}, {0}}};
  state.planner = {1, 2.5};
  state.staleness = {3};
  state.input = "[run]\nseed = 4\n";
  state.contents = {{"model/path", "00ff"}, {"prompts/train", "12"}};
  state.token = "0123456789abcdef";
  state.ledger_seconds[1][2] = 3.5;
  state.ledger_seconds[1][kUses - 1] = 4.5;
  state.useful_steps = 90;
  state.all_steps = 100;
  state.elapsed_seconds = 12;
  state.first_strict = 0.5;
  state.restarts = 2;
  SaveRunState(state, folder);
  const RunState loaded = LoadRunState(folder);
  EXPECT_EQ(loaded.next_iteration, 7U);
  EXPECT_EQ(loaded.plan.prompts, state.plan.prompts);
  EXPECT_EQ(loaded.plan.window_begin, 1U);
  EXPECT_EQ(loaded.plan.window_end, 4U);
  ASSERT_EQ(loaded.plan.groups.size(), 2U);
  EXPECT_EQ(loaded.plan.groups[0].seeds, state.plan.groups[0].seeds);
  EXPECT_EQ(loaded.plan.groups[0].explored[0], 0.25);
  EXPECT_TRUE(loaded.plan.groups[0].explored[1] != loaded.plan.groups[0].explored[1]);
  EXPECT_EQ(loaded.plan.groups[1].explored, state.plan.groups[1].explored);
  EXPECT_EQ(loaded.plan.groups[0].control, state.plan.groups[0].control);
  EXPECT_EQ(loaded.plan.groups[0].pool_mean, 0.5);
  EXPECT_EQ(loaded.plan.groups[0].pool_std, 0.125);
  EXPECT_TRUE(std::isnan(loaded.plan.groups[1].pool_std));
  EXPECT_EQ(loaded.planner, state.planner);
  EXPECT_EQ(loaded.staleness, state.staleness);
  EXPECT_EQ(loaded.input, state.input);
  EXPECT_EQ(loaded.contents, state.contents);
  EXPECT_EQ(loaded.token, state.token);
  EXPECT_EQ(loaded.ledger_seconds[1][2], 3.5);
  EXPECT_EQ(loaded.ledger_seconds[1][kUses - 1], 4.5);
  EXPECT_EQ(loaded.useful_steps, 90);
  EXPECT_EQ(loaded.all_steps, 100);
  EXPECT_EQ(loaded.elapsed_seconds, 12);
  EXPECT_EQ(loaded.first_strict, 0.5);
  EXPECT_EQ(loaded.restarts, 2);
}

TEST(RunState, ACheckpointWithOtherUsesIsRefusedByName) {
  const std::string folder = testing::TempDir() + "run_state_test_old";
  std::filesystem::create_directories(folder);
  SaveRunState(RunState(), folder);
  StateFile file = StateFile::Load(folder + "/coordinator.h5");
  const std::vector<double> reals(14, 0.0);
  file.Put("reals", std::span<const double>(reals));
  file.Save(folder + "/coordinator.h5");
  try {
    LoadRunState(folder);
    FAIL() << "accepted";
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(folder + "/coordinator.h5: \"reals\" has 14 values where 22"));
    EXPECT_THAT(error.what(), testing::HasSubstr("another version of spotlight"));
  }
}

TEST(RunState, MissingFileIsAFileError) { EXPECT_THROW(LoadRunState(testing::TempDir() + "nowhere"), FileError); }

}  // namespace
}  // namespace spotlight
