// What the host may do while kernels run (kernels/stream.hpp, kernels/recordings.hpp), on the CPU and in the emulation,
// whose copies are late and whose recordings are those of a graph of launches.
#include "kernels/stream.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/scratch.hpp"
#include "kernels/operations.hpp"
#include "kernels/recordings.hpp"
#include "tests/kernels/check.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"

namespace spotlight {
namespace {

Floats Of(const Buffer& buffer) {
  Floats values(static_cast<std::size_t>(buffer.size()));
  buffer.CopyToHost(values);
  return values;
}

Buffer Filled(const Floats& values) {
  Buffer buffer(std::ssize(values));
  buffer.CopyFromHost(values);
  return buffer;
}

Floats Read(HostCopy& copy) {
  const std::span<const float> values = copy.Values();
  return {values.begin(), values.end()};
}

TEST(HostCopy, HasTheValuesOfItsStart) {
  const std::unique_ptr<HostCopy> copy = MakeHostCopy();
  copy->Reserve(2);
  Buffer x = Filled({1, 2, 3});
  copy->Start(x.data(), 3);  // more than was reserved
  x.Zero();
  EXPECT_EQ(Read(*copy), (Floats{1, 2, 3}));
  EXPECT_TRUE(copy->Done());
  copy->Start(x.data() + 1, 1);
  EXPECT_EQ(Read(*copy), Floats{0});
  copy->Start(x.data(), 0);
  EXPECT_EQ(Read(*copy), Floats{});
}

TEST(LaunchTimer, TimesWhatLiesBetween) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const bool at_once = std::string(ActiveOperations().name) != "cuda";  // launches return when they have run
  const std::unique_ptr<LaunchTimer> timer = MakeLaunchTimer();
  Buffer x = Filled(Normals(1, 1 << 16));
  for (const int launches : {1, 100}) {
    const Clock::time_point before = Clock::now();
    timer->Start();
    const Clock::time_point started = Clock::now();
    for (int i = 0; i < launches; ++i) Axpy(x.size(), 1.0f, x.data(), x.data());
    const double least = at_once ? seconds(started) : 0.0;
    timer->Stop();
    const double measured = timer->Seconds();
    EXPECT_LE(measured, seconds(before));
    EXPECT_GE(measured, least);
    EXPECT_GT(measured, 0);
    EXPECT_TRUE(timer->Done());
  }
}

// In the emulation, whatever the tests run on otherwise.
class RecordingsTest : public testing::Test {
 protected:
  RecordingsTest() : usual_(ActiveOperations()) { UseOperations(CudaOnCpuOperations()); }
  ~RecordingsTest() override { UseOperations(usual_); }

  // y += factor x, and once more by a matrix product, which is none of the back end's own kernels.
  void Run(const Recordings::Key& key) {
    recordings_.Run(key, [&] {
      ++calls_;
      Axpy(2, factor_, x_.data(), y_.data());
      Gemm({.m = 1, .n = 2, .k = 1, .lda = 1, .ldb = 2, .ldc = 2, .accumulate = true}, one_.data(), x_.data(),
           y_.data());
    });
  }

  const Operations& usual_;
  Recordings recordings_{2};
  Buffer x_ = Filled({1, 10}), y_ = Filled({0, 0}), one_ = Filled({1});
  float factor_ = 1;
  int calls_ = 0;
};

TEST_F(RecordingsTest, ReplayTheArgumentsOnTheContentsOfTheMoment) {
  for (int i = 0; i < 3; ++i) Run({7});
  EXPECT_EQ(Of(y_), (Floats{6, 60}));
  EXPECT_EQ(calls_, 2);
  EXPECT_EQ(recordings_.replayed(), 1u);
  factor_ = 100;  // not in the key: nobody sees it
  x_.CopyFromHost(Floats{2, 20});
  Run({7});
  EXPECT_EQ(Of(y_), (Floats{10, 100}));
  Run({7, 100});
  EXPECT_EQ(Of(y_), (Floats{212, 2120}));
  EXPECT_EQ(calls_, 3);
}

TEST_F(RecordingsTest, KeepTheKeysUsedLast) {
  for (const std::int64_t key : {1, 1, 2, 2, 1, 3, 3}) Run({key});  // 3 takes the place of 2
  EXPECT_EQ(calls_, 6);
  Run({1});
  EXPECT_EQ(calls_, 6);
  Run({2});
  EXPECT_EQ(calls_, 7);
}

TEST_F(RecordingsTest, AreMadeAnewWhenMemoryGoesThatTheyMayUse) {
  auto older = std::make_unique<Buffer>(100);
  for (int i = 0; i < 3; ++i) Run({1});
  EXPECT_EQ(calls_, 2);
  Buffer(100).Zero();  // came and went after the recording
  Run({1});
  EXPECT_EQ(calls_, 2);
  older.reset();
  for (int i = 0; i < 3; ++i) Run({1});
  EXPECT_EQ(calls_, 4);
  EXPECT_EQ(Of(y_), (Floats{14, 140}));
}

TEST_F(RecordingsTest, HoldTheScratchMemoryThatTheyWrite) {
  const StepCoefficients step{.c_x = 1, .log_prob_scale = 1};
  Buffer log_prob(1);
  const auto score = [&] {
    recordings_.Run({1}, [&] { LogProb(1, 2, &step, x_.data(), x_.data(), y_.data(), log_prob.data()); });
    return Of(log_prob);
  };
  const Floats first = score();
  score();
  LogProb(1, 2, &step, x_.data(), x_.data(), x_.data(), log_prob.data());  // other scratch memory
  EXPECT_EQ(score(), first);
  EXPECT_EQ(recordings_.replayed(), 1u);
}

TEST_F(RecordingsTest, AreMadeAnewWhenScratchMemoryGrows) {
  const std::size_t large = cuda::ScratchSize() + cuda::ScratchBlock::kUnit;  // others may have made it grow
  cuda::ScratchBytes(large);
  for (int i = 0; i < 3; ++i) Run({1});
  cuda::ScratchBytes(large - 1);
  Run({1});
  EXPECT_EQ(calls_, 2);
  cuda::ScratchBytes(large + cuda::ScratchBlock::kUnit);
  for (int i = 0; i < 3; ++i) Run({1});
  EXPECT_EQ(calls_, 4);
  EXPECT_EQ(Of(y_), (Floats{14, 140}));
}

std::vector<std::size_t> asked, freed;  // of the block below
bool memory_is_full = false;

TEST(ScratchBlock, GrowsInUnitsAndFreesFirst) {
  cuda::ScratchBlock block(
      [](std::size_t bytes) -> void* {
        if (memory_is_full) throw UserError("full");
        asked.push_back(bytes);
        return &asked;
      },
      [](void*) { freed.push_back(asked.back()); });
  const std::size_t unit = cuda::ScratchBlock::kUnit;
  for (const std::size_t bytes : {std::size_t{1}, unit, unit + 1, 2 * unit - 5}) block.Reserve(bytes);
  EXPECT_EQ(asked, (std::vector{unit, 2 * unit}));
  EXPECT_EQ(freed, std::vector{unit});
  memory_is_full = true;
  EXPECT_THROW(block.Reserve(5 * unit), UserError);
  EXPECT_EQ(block.size(), 0u);
  memory_is_full = false;
  block.Reserve(unit);
  EXPECT_EQ(block.size(), unit);
}

TEST_F(RecordingsTest, RefuseTheHostsWork) {
  const auto refused = [&](const std::function<void()>& work) {
    recordings_.Run({1}, [] {});
    EXPECT_THROW(recordings_.Run({1}, work), InternalError);
    recordings_ = Recordings(2);
  };
  refused([&] { Of(y_); });
  refused([&] { y_.CopyFromHost(Floats{1}); });
  refused([&] { SquaredNorm(2, x_.data()); });
  refused([&] { Buffer(1000).Zero(); });
  refused([&] { Record([] {}); });
  Run({2});
  EXPECT_EQ(Of(y_), (Floats{2, 20})) << "what follows runs";
}

TEST_F(RecordingsTest, AreCallsWhereNothingIsRecorded) {
  UseOperations(KokkosOperations());
  for (int i = 0; i < 4; ++i) Run({1});
  EXPECT_EQ(calls_, 4);
  EXPECT_THROW(Record([] {}), InternalError);
}

}  // namespace
}  // namespace spotlight
