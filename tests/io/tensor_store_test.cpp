#include <sys/mount.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "base/error.hpp"
#include "faulty_disk.hpp"
#include "io/h5.hpp"
#include "io/tensor_store_folder.hpp"
#include "tensor_store_content.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kFloats = 24;
constexpr double kLong = 20;  // seconds

class TensorStoreTest : public IoTest {
 protected:
  TensorStoreTest() : options_(StoreOptions(Path("store"))) {}
  ~TensorStoreTest() override {
    Disk().error = 0;
    Disk().milliseconds = 0;
  }

  static void CommitUpTo(TensorStore& store, const Request& request, std::uint32_t steps) {
    for (std::uint32_t step = 1; step <= steps; ++step) {
      EXPECT_TRUE(store.CommitState(request, StoreState(request, step, kFloats)));
      EXPECT_TRUE(store.WaitWritten(kLong));
    }
  }
  static void ExpectState(TensorStore& store, const Request& request, std::uint32_t steps) {
    const std::optional<DenoiseState> state = store.State(request);
    ASSERT_TRUE(state) << steps;
    ExpectSame(*state, StoreState(request, steps, kFloats));
  }
  std::string FilePath(const std::string& name = "iteration_000001_00.h5") const { return options_.path + "/" + name; }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(options_.path)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }
  TensorStoreFormat Format() const { return {options_.sizes, options_.run, Path("format.h5")}; }
  // Where row `row` of slot `slot` begins in a file.
  std::size_t RowOffset(std::size_t slot, std::size_t row) const { return Format().RowOffset(slot, row); }
  static void FlipBit(const std::string& path, std::size_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 0x10));
  }

  TensorStore::Options options_;
};

TEST_F(TensorStoreTest, StatesComeBackFromMemoryDiskAndAfterARestart) {
  for (const RequestKind kind : {RequestKind::kRollout, RequestKind::kExplore, RequestKind::kEvaluate}) {
    for (std::uint32_t steps = 1; steps <= kSteps; ++steps) {
      SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", step " << steps);
      const Request request = StoreRequest(steps, kind);
      {
        TensorStore store(options_);
        EXPECT_FALSE(store.State(request));
        EXPECT_TRUE(store.CommitState(request, StoreState(request, steps, kFloats)));
        ExpectState(store, request, steps);
        ASSERT_TRUE(store.WaitWritten(kLong));
        EXPECT_EQ(store.Count().pending_bytes, 0u);
        ExpectState(store, request, steps);
      }
      TensorStore again(options_);
      Request other_lease = request;  // a restarted run numbers anew
      other_lease.id = 1;
      other_lease.epoch = 0;
      ExpectState(again, other_lease, steps);
      EXPECT_THAT(again.Problems(), IsEmpty());
    }
  }
}

TEST_F(TensorStoreTest, WorkOfOtherWeightsIsNotFound) {
  const Request request = StoreRequest(3), finished = StoreRequest(4);
  {
    TensorStore store(options_);
    store.NameWeights(RequestKind::kRollout, request.weight_version, 7);
    CommitUpTo(store, request, 2);
    EXPECT_TRUE(store.CommitSample(StoreSample(finished, kFloats)));
    ASSERT_TRUE(store.WaitWritten(kLong));
  }
  TensorStore store(options_);
  EXPECT_FALSE(store.State(request)) << "nobody has named them";
  store.NameWeights(RequestKind::kRollout, request.weight_version, 8);
  store.NameWeights(RequestKind::kEvaluate, request.weight_version, 7);
  EXPECT_FALSE(store.State(request));
  EXPECT_THAT(store.Samples(1), IsEmpty());
  CommitUpTo(store, request, 3);
  store.NameWeights(RequestKind::kRollout, request.weight_version, 7);
  ExpectState(store, request, 2);
  EXPECT_THAT(store.Samples(1), SizeIs(1));
  store.NameWeights(RequestKind::kRollout, request.weight_version, 8);
  ExpectState(store, request, 3);
  EXPECT_THAT(store.Problems(), IsEmpty());
}

TEST_F(TensorStoreTest, EveryStepWritesItsLatentsOnce) {
  const Request request = StoreRequest(3);
  TensorStore store(options_);
  const std::size_t latents = kFloats * sizeof(float);
  const std::size_t record = Format().RecordBytes();
  std::uint64_t before = 0;
  for (std::uint32_t step = 1; step <= kSteps; ++step) {
    EXPECT_TRUE(store.CommitState(request, StoreState(request, step, kFloats)));
    ASSERT_TRUE(store.WaitWritten(kLong));
    EXPECT_EQ(store.Count().bytes - before, latents + record) << step;
    before = store.Count().bytes;
  }
  EXPECT_TRUE(store.CommitSample(StoreSample(request, kFloats)));
  ASSERT_TRUE(store.WaitWritten(kLong));
  EXPECT_EQ(store.Count().bytes - before, record);  // its latents are there
  EXPECT_EQ(store.Count().commits, kSteps + 1u);
}

TEST_F(TensorStoreTest, RowsOfSkippedStepsAreWrittenWithALaterOne) {
  const Request request = StoreRequest(3);
  {
    TensorStore store(options_);
    for (const std::uint32_t step : {1u, 5u, 6u}) {
      EXPECT_TRUE(store.CommitState(request, StoreState(request, step, kFloats)));
      ASSERT_TRUE(store.WaitWritten(kLong));
    }
  }
  TensorStore again(options_);
  ExpectState(again, request, 6);
}

TEST_F(TensorStoreTest, SamplesComeBackOncePerContent) {
  Sample nan = StoreSample(StoreRequest(9, RequestKind::kEvaluate), kFloats);
  nan.terms[1] = std::numeric_limits<double>::quiet_NaN();
  for (int restart = 0; restart < 2; ++restart) {
    TensorStore store(options_);
    for (const std::uint32_t prompt : {5u, 2u, 2u, 8u}) {
      EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(prompt), kFloats)));
    }
    EXPECT_TRUE(store.CommitSample(nan));
    EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(2, RequestKind::kRollout, 2), kFloats)));
    const auto verify = [&] {
      const std::vector<Sample> samples = store.Samples(1);
      ASSERT_THAT(samples, SizeIs(4));
      ExpectSame(samples[0], StoreSample(StoreRequest(2), kFloats));
      ExpectSame(samples[1], StoreSample(StoreRequest(5), kFloats));
      ExpectSame(samples[2], StoreSample(StoreRequest(8), kFloats));
      EXPECT_TRUE(std::isnan(samples[3].terms[1]));
      EXPECT_EQ(samples[0].request.id, 0u);
      EXPECT_EQ(samples[0].request.epoch, 0u);
    };
    verify();
    ASSERT_TRUE(store.WaitWritten(kLong));
    verify();
    EXPECT_THAT(store.Samples(2), SizeIs(1));
    EXPECT_THAT(store.Samples(3), IsEmpty());
  }
}

TEST_F(TensorStoreTest, LateAndRepeatedCommitsChangeNothing) {
  const Request request = StoreRequest(1);
  TensorStore store(options_);
  CommitUpTo(store, request, 4);
  const std::uint64_t commits = store.Count().commits;
  EXPECT_TRUE(store.CommitState(request, StoreState(request, 4, kFloats)));
  EXPECT_TRUE(store.CommitState(request, StoreState(request, 2, kFloats)));
  ExpectState(store, request, 4);
  EXPECT_TRUE(store.CommitSample(StoreSample(request, kFloats)));
  ASSERT_TRUE(store.WaitWritten(kLong));
  EXPECT_TRUE(store.CommitState(request, StoreState(request, 5, kFloats)));
  EXPECT_TRUE(store.CommitSample(StoreSample(request, kFloats)));
  EXPECT_EQ(store.Count().commits, commits + 1);
  EXPECT_FALSE(store.State(request));
  EXPECT_THAT(store.Samples(1), SizeIs(1));
}

TEST_F(TensorStoreTest, OtherLatentsOfTheSameStepAreNotMixedIn) {
  const Request request = StoreRequest(1);
  DenoiseState other = StoreState(request, 4, kFloats);
  other.trajectory[0] += 1;
  {
    TensorStore store(options_);
    CommitUpTo(store, request, 3);
    EXPECT_TRUE(store.CommitState(request, other));
    ASSERT_TRUE(store.WaitWritten(kLong));
    ExpectSame(*store.State(request), other);
  }
  TensorStore again(options_);
  ExpectSame(*again.State(request), other);
  EXPECT_THAT(again.Problems(), IsEmpty());
}

TEST_F(TensorStoreTest, ForgetFreesFilesAndRefusesLateCommits) {
  TensorStore store(options_);
  for (std::uint32_t iteration : {1u, 2u, 3u}) {
    for (std::uint32_t prompt = 0; prompt < 6; ++prompt) {  // a file has four slots
      EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(prompt, RequestKind::kRollout, iteration), kFloats)));
    }
  }
  ASSERT_TRUE(store.WaitWritten(kLong));
  EXPECT_THAT(Files(), SizeIs(6));
  store.Forget(3);
  EXPECT_FALSE(store.CommitState(StoreRequest(0, RequestKind::kRollout, 2),
                                 StoreState(StoreRequest(0, RequestKind::kRollout, 2), 1, kFloats)));
  EXPECT_THAT(store.Samples(2), IsEmpty());
  EXPECT_THAT(store.Samples(3), SizeIs(6));
  EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(7, RequestKind::kRollout, 3), kFloats)));
  ASSERT_TRUE(store.WaitWritten(kLong));
  EXPECT_THAT(Files(), UnorderedElementsAre("iteration_000003_00.h5", "iteration_000003_01.h5"));
}

TEST_F(TensorStoreTest, FinishedRequestsGiveTheirNewestLatentsBack) {
  options_.sizes.latent = {64, 1024};
  const Request request = StoreRequest(1, RequestKind::kExplore);
  const std::size_t floats = options_.sizes.Floats();
  TensorStore store(options_);
  struct stat status {};
  for (std::uint32_t step : {1u, 2u}) {
    EXPECT_TRUE(store.CommitState(request, StoreState(request, step, floats)));
    ASSERT_TRUE(store.WaitWritten(kLong));
  }
  ASSERT_EQ(stat(FilePath().c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, static_cast<long>(2 * floats * sizeof(float)));
  EXPECT_TRUE(store.CommitSample(StoreSample(request, floats)));
  ASSERT_TRUE(store.WaitWritten(kLong));
  ASSERT_EQ(stat(FilePath().c_str(), &status), 0);
  EXPECT_LE(status.st_blocks * 512, static_cast<long>(floats * sizeof(float)));
}

TEST_F(TensorStoreTest, HDF5ReadsItWhileItIsWritten) {
  const Request request = StoreRequest(1);
  TensorStore store(options_);
  CommitUpTo(store, request, 4);
  const H5File file(FilePath(), H5File::Mode::kRead);
  EXPECT_EQ(file.Dimensions("/latents"), (Shape{4, 5, 6, 4}));
  EXPECT_EQ(file.Dimensions("/records"), (Shape{4, 2}));
  const std::vector<float> latents = file.Read<float>("/latents");
  const DenoiseState state = StoreState(request, 4, kFloats);
  EXPECT_TRUE(std::equal(state.trajectory.begin(), state.trajectory.end(), latents.begin()));
}

TEST_F(TensorStoreTest, StaleAndForeignFilesAreLeftOrRemoved) {
  { TensorStore store(options_); }
  std::ofstream(options_.path + "/.iteration_000004_00.h5.partial") << "half";
  std::ofstream(options_.path + "/notes.txt") << "mine";
  std::ofstream(options_.path + "/.notes.partial") << "mine";
  {
    TensorStore store(options_);
    EXPECT_THAT(store.Problems(), IsEmpty());
    EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(1), kFloats)));
    ASSERT_TRUE(store.WaitWritten(kLong));
  }
  EXPECT_THAT(Files(), UnorderedElementsAre("iteration_000001_00.h5", "notes.txt", ".notes.partial"));
  RemoveTensorStore(options_.path);
  EXPECT_THAT(Files(), UnorderedElementsAre("notes.txt", ".notes.partial"));
  std::filesystem::remove(options_.path + "/notes.txt");
  std::filesystem::remove(options_.path + "/.notes.partial");
  RemoveTensorStore(options_.path);
  EXPECT_THAT(Listing(), IsEmpty());
  RemoveTensorStore(options_.path);
}

TEST_F(TensorStoreTest, AFolderThatCannotBeMadeIsNamed) {
  WriteFile("store", "a file");
  ExpectError<FileError>([&] { TensorStore store(options_); }, {options_.path, "folder"});
}

class DamagedStoreTest : public TensorStoreTest {
 protected:
  // Requests 1 and 2 at steps 5 and 3, request 3 finished.
  DamagedStoreTest() {
    TensorStore store(options_);
    CommitUpTo(store, StoreRequest(1), 5);
    CommitUpTo(store, StoreRequest(2), 3);
    EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(3), kFloats)));
    EXPECT_TRUE(store.WaitWritten(kLong));
  }
  // Nothing is used, the file is left as it is, and work goes on in another.
  void ExpectRefused(const std::string& why) {
    const std::string bytes = ReadFile(FilePath());
    TensorStore store(options_);
    EXPECT_THAT(store.Problems(), ElementsAre(AllOf(HasSubstr(FilePath()), HasSubstr(why), HasSubstr("start anew"))));
    EXPECT_FALSE(store.State(StoreRequest(1)));
    EXPECT_THAT(store.Samples(1), IsEmpty());
    CommitUpTo(store, StoreRequest(1), 2);
    ExpectState(store, StoreRequest(1), 2);
    EXPECT_EQ(ReadFile(FilePath()), bytes);
    EXPECT_TRUE(std::filesystem::exists(FilePath("iteration_000001_01.h5")));
  }
};

TEST_F(DamagedStoreTest, TheStepBeforeDamagedLatentsIsUsed) {
  FlipBit(FilePath(), RowOffset(0, 3) + 7);  // step 5's; row 2 has step 4's
  TensorStore store(options_);
  ExpectState(store, StoreRequest(1), 4);
  ExpectState(store, StoreRequest(2), 3);
  EXPECT_THAT(store.Samples(1), SizeIs(1));
  EXPECT_THAT(store.Problems(),
              ElementsAre(AllOf(HasSubstr(FilePath()), HasSubstr("latents of step 5 of the rollout of prompt 1"),
                                HasSubstr("step 4"), HasSubstr("is used"))));
  CommitUpTo(store, StoreRequest(1), 6);
  ExpectState(store, StoreRequest(1), 6);
}

TEST_F(DamagedStoreTest, TheStepBeforeADamagedRecordIsUsed) {
  const TensorStoreFormat format = Format();
  FlipBit(FilePath(), format.RecordOffset(1, 0) + 70);  // three commits: the newest is the first record again
  TensorStore store(options_);
  ExpectState(store, StoreRequest(2), 2);
  EXPECT_THAT(store.Problems(), ElementsAre(AllOf(HasSubstr("slot 1"), HasSubstr("unfinished or damaged"),
                                                  HasSubstr("step 2 of the rollout of prompt 2"))));
}

TEST_F(DamagedStoreTest, DamageIsFoundWhileRunning) {
  TensorStore store(options_);
  EXPECT_THAT(store.Problems(), IsEmpty());
  FlipBit(FilePath(), RowOffset(0, 3) + 7);
  FlipBit(FilePath(), RowOffset(2, 1));
  ExpectState(store, StoreRequest(1), 4);
  EXPECT_THAT(store.Samples(1), IsEmpty());
  EXPECT_THAT(store.Problems(), ElementsAre(HasSubstr("latents of step 5"), HasSubstr("starts anew")));
  CommitUpTo(store, StoreRequest(3), 1);
  ExpectState(store, StoreRequest(3), 1);
}

TEST_F(DamagedStoreTest, ACutFileKeepsWhatIsWhole) {
  std::filesystem::resize_file(FilePath(), RowOffset(1, 1));
  TensorStore store(options_);
  ExpectState(store, StoreRequest(1), 5);
  EXPECT_FALSE(store.State(StoreRequest(3)));
  EXPECT_THAT(store.Problems().at(0), AllOf(HasSubstr(FilePath()), HasSubstr("it was cut")));
  ExpectState(store, StoreRequest(2), 2);  // step 3's latents were behind the cut
  CommitUpTo(store, StoreRequest(3), 3);
  ExpectState(store, StoreRequest(3), 3);
}

TEST_F(DamagedStoreTest, AnEmptyFileIsRefused) {
  std::filesystem::resize_file(FilePath(), 0);
  ExpectRefused("is empty");
}

TEST_F(DamagedStoreTest, AFileCutInItsBeginningIsRefused) {
  std::filesystem::resize_file(FilePath(), 100);
  ExpectRefused("beginning is damaged");
}

TEST_F(DamagedStoreTest, AFlippedBitInTheBeginningIsRefused) {
  FlipBit(FilePath(), 50);
  ExpectRefused("beginning is damaged");
}

TEST_F(DamagedStoreTest, AForeignFileIsRefused) {
  std::ofstream(FilePath(), std::ios::binary) << std::string(100000, 'x');
  ExpectRefused("made by another version or run");
}

TEST_F(DamagedStoreTest, FilesOfOtherRunsAndSizesAreRefused) {
  options_.run = "tes2";
  ExpectRefused("another version or run");
  options_.run = "test";
  options_.sizes.terms = 2;
  TensorStore store(options_);
  EXPECT_THAT(store.Problems(), SizeIs(2));
}

// Any one flipped bit: no crash, no wrong content.
TEST_F(DamagedStoreTest, NoBitCanBeFlippedUnseen) {
  const std::string bytes = ReadFile(FilePath());
  for (std::size_t at = 3; at < bytes.size(); at += 61) {
    std::ofstream(FilePath(), std::ios::binary) << bytes;
    FlipBit(FilePath(), at);
    TensorStore store(options_);
    for (const std::uint32_t prompt : {1u, 2u}) {
      const Request request = StoreRequest(prompt);
      const std::optional<DenoiseState> state = store.State(request);
      if (state) ExpectSame(*state, StoreState(request, state->steps, kFloats));
    }
    for (const Sample& sample : store.Samples(1)) ExpectSame(sample, StoreSample(StoreRequest(3), kFloats));
  }
}

TEST_F(TensorStoreTest, ASlowDiskNeitherBlocksNorTakesMemory) {
  options_.pending_bytes = 6 * (kFloats * sizeof(float) + sizeof(Commit));
  TensorStore store(options_);
  Disk().milliseconds = 300;
  const auto start = std::chrono::steady_clock::now();
  const Request first = StoreRequest(0, RequestKind::kExplore);
  int refused = 0;
  for (std::uint32_t step = 1; step <= kSteps; ++step) {
    for (std::uint32_t prompt = 0; prompt < 20; ++prompt) {
      const Request request = StoreRequest(prompt, RequestKind::kExplore);
      refused += !store.CommitState(request, StoreState(request, step, kFloats));
      EXPECT_LE(store.Count().pending_bytes, options_.pending_bytes);
    }
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(passed.count(), 0.2);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(store.Count().dropped, static_cast<std::uint64_t>(refused));
  EXPECT_GT(store.Count().superseded, 0u);
  ExpectState(store, first, kSteps);  // newer states of what is pending take no more memory
  EXPECT_FALSE(store.WaitWritten(0.01));
  Disk().milliseconds = 0;
  EXPECT_TRUE(store.WaitWritten(kLong));
  ExpectState(store, first, kSteps);
  EXPECT_EQ(store.Count().pending_bytes, 0u);
}

TEST_F(TensorStoreTest, AFailingDiskIsNamedAndTriedAgain) {
  options_.retry_seconds = 0.02;
  for (const int error : {ENOSPC, EIO}) {
    TensorStore store(options_);
    const Request request = StoreRequest(static_cast<std::uint32_t>(error));
    CommitUpTo(store, request, 1);
    Disk().error = error;
    EXPECT_TRUE(store.CommitState(request, StoreState(request, 2, kFloats)));
    EXPECT_FALSE(store.WaitWritten(kLong));
    EXPECT_TRUE(store.Count().failing);
    EXPECT_THAT(store.Problems(), ElementsAre(AllOf(HasSubstr(FilePath()), HasSubstr("cannot write"),
                                                    HasSubstr(std::strerror(error)), HasSubstr("goes on"))));
    EXPECT_TRUE(store.CommitState(request, StoreState(request, 3, kFloats)));
    ExpectState(store, request, 3);  // from memory
    EXPECT_FALSE(store.CommitSample(StoreSample(StoreRequest(30), kFloats)));
    Disk().error = 0;
    for (int i = 0; i < 1000 && store.Count().failing; ++i) usleep(10000);
    EXPECT_TRUE(store.WaitWritten(kLong));
    ExpectState(store, request, 3);
    EXPECT_THAT(store.Problems().back(), HasSubstr("can be written again"));
    EXPECT_TRUE(store.CommitSample(StoreSample(request, kFloats)));
  }
}

// A refused sample's state is nobody's any more; with nothing left to write, the next commit tries the disk.
TEST_F(TensorStoreTest, FinishedRequestsTakeNoMemoryWhileTheDiskFails) {
  options_.retry_seconds = 0.02;
  TensorStore store(options_);
  Disk().error = ENOSPC;
  EXPECT_TRUE(store.CommitState(StoreRequest(1), StoreState(StoreRequest(1), 2, kFloats)));
  EXPECT_FALSE(store.WaitWritten(kLong));
  for (int i = 0; i < 1000 && store.Count().pending_bytes > 0; ++i) {  // a retry may have it just now
    EXPECT_FALSE(store.CommitSample(StoreSample(StoreRequest(1), kFloats)));
  }
  EXPECT_EQ(store.Count().pending_bytes, 0u);
  Disk().error = 0;
  for (int i = 0; i < 1000 && store.Count().failing; ++i) usleep(10000);
  EXPECT_TRUE(store.CommitSample(StoreSample(StoreRequest(2), kFloats)));
  EXPECT_TRUE(store.WaitWritten(kLong));
  EXPECT_THAT(store.Samples(1), SizeIs(1));
}

TEST_F(TensorStoreTest, AFullFileSystemKeepsWhatWasWritten) {
  const std::string disk = Path("disk");
  std::filesystem::create_directory(disk);
  if (mount("none", disk.c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "needs the right to mount a tmpfs";
  const std::shared_ptr<void> unmount(nullptr, [&](void*) { umount2(disk.c_str(), MNT_DETACH); });
  options_ = StoreOptions(disk + "/store", {64, 1024});  // 256 KiB: three or four of them fit
  const std::size_t floats = options_.sizes.Floats();
  {
    TensorStore store(options_);
    for (std::uint32_t prompt = 0; prompt < 8; ++prompt) {
      EXPECT_TRUE(store.CommitState(StoreRequest(prompt), StoreState(StoreRequest(prompt), 1, floats)));
      store.WaitWritten(kLong);
    }
    EXPECT_TRUE(store.Count().failing);
    EXPECT_THAT(store.Problems(), ElementsAre(HasSubstr("No space left on device")));
    for (std::uint32_t prompt = 0; prompt < 8; ++prompt) {
      const std::optional<DenoiseState> state = store.State(StoreRequest(prompt));
      ASSERT_TRUE(state);
      ExpectSame(*state, StoreState(StoreRequest(prompt), 1, floats));
    }
  }
  {
    TensorStore store(options_);
    int kept = 0;
    for (std::uint32_t prompt = 0; prompt < 8; ++prompt) {
      const std::optional<DenoiseState> state = store.State(StoreRequest(prompt));
      if (!state) continue;
      ExpectSame(*state, StoreState(StoreRequest(prompt), 1, floats));
      ++kept;
    }
    EXPECT_GE(kept, 2);
    EXPECT_LT(kept, 5);
  }
}

}  // namespace
}  // namespace spotlight
