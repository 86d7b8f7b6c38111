#include "io/checkpoint.hpp"

#include <limits>

#include "base/error.hpp"
#include "full_disk.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

namespace fs = std::filesystem;

class CheckpointTest : public IoTest {
 protected:
  std::string RunDir() const { return folder_.string(); }

  void Checkpoint(int step, int keep = 10) {
    StateFile state;
    state.Put("step", std::vector<std::int64_t>{step});
    state.Put("weights", std::vector<float>(1000, static_cast<float>(step)));
    state.Save(BeginCheckpoint(RunDir(), step) + "/state.h5");
    CommitCheckpoint(RunDir(), step, keep, {"state.h5"});
  }

  std::string StatePath(int step) const { return CheckpointPath(RunDir(), step) + "/state.h5"; }

  static void FlipByte(const std::string& path, std::size_t at) {
    std::string bytes = ReadFile(path);
    bytes.at(at) = static_cast<char>(bytes[at] ^ 0x10);
    std::ofstream(path, std::ios::binary) << bytes;
  }
};

TEST_F(CheckpointTest, StateKeepsEveryBit) {
  const std::vector<float> floats = {-0.0f, 1e-45f, std::numeric_limits<float>::infinity(), 1};
  const std::vector<double> doubles = {0.1, -1e-320};
  const std::vector<std::int64_t> ints = {std::numeric_limits<std::int64_t>::min()};
  const std::vector<std::uint64_t> uints = {~0ull, 0};
  const std::string text("zero\0inside ü", 14);
  StateFile state;
  state.Put("adam/m/img_in.weight", floats);
  state.Put("doubles", doubles);
  state.Put("ints", ints);
  state.Put("uints", uints);
  state.Put("text", text);
  state.Put("none", std::vector<float>{});
  state.Put("empty", std::string_view());
  state.Save(Path("state.h5"));
  const StateFile read = StateFile::Load(Path("state.h5"));
  EXPECT_EQ(read.Floats("adam/m/img_in.weight"), floats);
  EXPECT_TRUE(std::signbit(read.Floats("adam/m/img_in.weight")[0]));
  EXPECT_EQ(read.Doubles("doubles"), doubles);
  EXPECT_EQ(read.Ints("ints"), ints);
  EXPECT_EQ(read.Uints("uints"), uints);
  EXPECT_EQ(read.Text("text"), text);
  EXPECT_TRUE(read.Floats("none").empty());
  EXPECT_EQ(read.Text("empty"), "");
  EXPECT_FALSE(read.Has("other"));
  ExpectError<FileError>([&] { read.Floats("other"); }, {"state.h5", "has no other"});
  ExpectError<FileError>([&] { read.Floats("doubles"); }, {"state.h5", "doubles is not of type float"});
  EXPECT_THAT(Listing(), ElementsAre("state.h5"));
}

TEST_F(CheckpointTest, LoadFindsAFlippedBit) {
  StateFile state;
  state.Put("weights", std::vector<float>(1000, 3.0f));
  state.Save(Path("state.h5"));
  const std::vector<float> pattern(4, 3.0f);
  const std::string needle(reinterpret_cast<const char*>(pattern.data()), 16);
  FlipByte(Path("state.h5"), ReadFile(Path("state.h5")).find(needle));
  ExpectError<FileError>([&] { StateFile::Load(Path("state.h5")); }, {"state.h5", "/state/weights is damaged"});
  fs::resize_file(Path("state.h5"), 100);
  ExpectError<FileError>([&] { StateFile::Load(Path("state.h5")); }, {"state.h5", "cannot open as HDF5"});
}

TEST_F(CheckpointTest, KeepsTheNewestAndPointsLatestToIt) {
  EXPECT_TRUE(ListCheckpoints(RunDir()).empty());
  for (const int step : {5, 10, 15}) Checkpoint(step, 2);
  EXPECT_THAT(ListCheckpoints(RunDir()), ElementsAre(10, 15));
  EXPECT_EQ(fs::read_symlink(folder_ / "checkpoints/latest"), "step_000015");
  EXPECT_THAT(StateFile::Load((folder_ / "checkpoints/latest/state.h5").string()).Ints("step"), ElementsAre(15));
  VerifyCheckpoint(RunDir(), 15);
}

TEST_F(CheckpointTest, ACopyWithoutLinksIsAsGoodAsTheRun) {
  Checkpoint(1);
  const fs::path latest = folder_ / "checkpoints" / "latest";
  fs::remove(latest);
  fs::copy(CheckpointPath(RunDir(), 1), latest, fs::copy_options::recursive);
  RemoveLaterCheckpoints(RunDir(), 1);
  EXPECT_EQ(fs::read_symlink(latest), "step_000001");
  Checkpoint(2);
  EXPECT_EQ(fs::read_symlink(latest), "step_000002");
}

TEST_F(CheckpointTest, UnfinishedFoldersAreNoCheckpointsAndGoAway) {
  Checkpoint(1);
  const std::string stale = BeginCheckpoint(RunDir(), 2);
  fs::create_directories(CheckpointPath(RunDir(), 3));
  std::vector<std::string> problems;
  EXPECT_THAT(ListCheckpoints(RunDir()), ElementsAre(1));
  EXPECT_EQ(NewestGoodCheckpoint(RunDir(), problems), 1);
  Checkpoint(4);
  EXPECT_FALSE(fs::exists(stale));
  EXPECT_TRUE(problems.empty());
}

TEST_F(CheckpointTest, ResumeBeforeTheNewestLeavesThatCourse) {
  for (const int step : {5, 10, 15}) Checkpoint(step);
  Checkpoint(10);
  EXPECT_THAT(ListCheckpoints(RunDir()), ElementsAre(5, 10));
  EXPECT_EQ(fs::read_symlink(folder_ / "checkpoints/latest"), "step_000010");
}

TEST_F(CheckpointTest, LaterOnesGoWithTheirCourse) {
  for (const int step : {5, 10, 15}) Checkpoint(step);
  RemoveLaterCheckpoints(RunDir(), 5);
  EXPECT_THAT(ListCheckpoints(RunDir()), ElementsAre(5));
  EXPECT_EQ(fs::read_symlink(folder_ / "checkpoints/latest"), "step_000005");
}

TEST_F(CheckpointTest, AFileThatIsMissingIsNoticedBeforeItCounts) {
  Checkpoint(1);
  StateFile().Save(BeginCheckpoint(RunDir(), 2) + "/state.h5");
  ExpectError<FileError>(
      [&] {
        CommitCheckpoint(RunDir(), 2, 1, {"state.h5", "trainer.h5"});
      },
      {"step_000002", "trainer.h5"});
  EXPECT_THAT(ListCheckpoints(RunDir()), ElementsAre(1));
}

TEST_F(CheckpointTest, AMarkerOfAnotherShapeIsDamage) {
  Checkpoint(1);
  for (const std::string recorded : {"3", "{\"size\": \"many\"}", "{\"size\": -1, \"crc32\": null}"}) {
    WriteFile("checkpoints/step_000001/DONE", "{\"files\": {\"state.h5\": " + recorded + "}}");
    ExpectError<FileError>([&] { VerifyCheckpoint(RunDir(), 1); }, {"state.h5: damaged"});
  }
}

TEST_F(CheckpointTest, FallsBackPastDamage) {
  for (const int step : {1, 2, 3, 4, 5}) Checkpoint(step);
  FlipByte(StatePath(5), 3000);
  fs::resize_file(StatePath(4), 100);
  fs::remove(StatePath(3));
  WriteFile("checkpoints/step_000002/DONE", "{");
  ExpectError<FileError>([&] { VerifyCheckpoint(RunDir(), 5); }, {StatePath(5), "checksum does not match"});
  std::vector<std::string> problems;
  EXPECT_EQ(NewestGoodCheckpoint(RunDir(), problems), 1);
  EXPECT_THAT(problems,
              ElementsAre(HasSubstr("step_000005/state.h5: damaged: its checksum"),
                          HasSubstr("step_000004/state.h5: damaged: it has 100 bytes"),
                          HasSubstr("step_000003/state.h5: cannot read"), HasSubstr("step_000002/DONE: damaged")));
  FlipByte(StatePath(1), 3000);
  problems.clear();
  EXPECT_EQ(NewestGoodCheckpoint(RunDir(), problems), std::nullopt);
  EXPECT_EQ(problems.size(), 5u);
}

TEST_F(CheckpointTest, FullDiskKeepsTheOldCheckpoint) {
  Checkpoint(1);
  const std::string message = FileErrorOnFullDisk(16384, [&] {
    StateFile state;
    state.Put("weights", std::vector<float>(100000, 1.0f));
    state.Save(BeginCheckpoint(RunDir(), 2) + "/state.h5");
    CommitCheckpoint(RunDir(), 2, 1, {"state.h5"});
  });
  EXPECT_THAT(message, HasSubstr("step_000002"));
  EXPECT_THAT(message, HasSubstr("File too large"));
  std::vector<std::string> problems;
  EXPECT_EQ(NewestGoodCheckpoint(RunDir(), problems), 1);
  EXPECT_TRUE(problems.empty());
  EXPECT_THAT(StateFile::Load(StatePath(1)).Ints("step"), ElementsAre(1));
}

TEST_F(CheckpointTest, FolderThatCannotBeMadeIsNamed) {
  WriteFile("checkpoints", "a file in the way");
  ExpectError<FileError>([&] { BeginCheckpoint(RunDir(), 1); }, {"checkpoints", "Not a directory"});
}

}  // namespace
}  // namespace spotlight
