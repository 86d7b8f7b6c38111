// The emulation of CUDA kernels: what it computes, in every order of blocks, warps and lanes, and that it finds
// missing and divergent barriers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vectors.cuh"
#include "tests/kernels/check.hpp"

namespace spotlight::cuda {
namespace {

// The order is the tests' own: forward, or what InAllOrders() says. The caller's is put back for the tests that follow.
class CudaOnCpu : public testing::Test {
 protected:
  CudaOnCpu() {
    const char* variable = std::getenv("SPOTLIGHT_CUDA_ORDER");
    if (variable != nullptr) before_ = variable;
    unsetenv("SPOTLIGHT_CUDA_ORDER");
  }
  ~CudaOnCpu() override {
    before_ ? setenv("SPOTLIGHT_CUDA_ORDER", before_->c_str(), 1) : unsetenv("SPOTLIGHT_CUDA_ORDER");
  }

 private:
  std::optional<std::string> before_;
};
using CudaOnCpuDeathTest = CudaOnCpu;

template <typename Body>
void InAllOrders(const Body& body) {
  for (const char* order : {"forward", "reverse", "1", "7"}) {
    SCOPED_TRACE(std::string("SPOTLIGHT_CUDA_ORDER=") + order);
    setenv("SPOTLIGHT_CUDA_ORDER", order, 1);
    body();
  }
}

__global__ void LinearIndexKernel(int* count, int* index) {
  const auto block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const auto thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const auto at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  ++count[at];
  index[at] = static_cast<int>(blockIdx.z * 100 + threadIdx.y * 10 + threadIdx.x);
}

TEST_F(CudaOnCpu, RunsEveryThreadOfThreeDimensionsOnce) {
  InAllOrders([] {
    std::vector<int> count(2 * 3 * 4 * 5 * 3 * 2), index(count.size());
    Launch(LinearIndexKernel, dim3(2, 3, 4), dim3(5, 3, 2), 0, count.data(), index.data());
    EXPECT_EQ(count, std::vector<int>(count.size(), 1));
    EXPECT_EQ(index.front(), 0);
    EXPECT_EQ(index[29], 24);                    // the last thread of block 0
    EXPECT_EQ(index[index.size() - 1], 324);     // and of the last block
    EXPECT_EQ(index[6 * 30 + 6], 100 + 10 + 1);  // x 1, y 1 of the first block with z 1
  });
}

TEST_F(CudaOnCpu, RunsNoThreadOfAnEmptyGrid) {
  std::vector<int> count(1), index(1);
  Launch(LinearIndexKernel, dim3(1, 0, 1), 1, 0, count.data(), index.data());
  EXPECT_EQ(count[0], 0);
}

// Every thread reads what its mirror image in the block has written.
template <bool kBarrier>
__global__ void MirrorKernel(const int* from, int* to) {
  __shared__ int fixed[96];
  int* dynamic = SharedMemory<int>();
  const unsigned own = threadIdx.x, mirrored = blockDim.x - 1 - threadIdx.x;
  fixed[own] = dynamic[own] = from[own];
  if (kBarrier) __syncthreads();
  to[own] = fixed[mirrored] - 2 * dynamic[mirrored];
}

TEST_F(CudaOnCpu, SharedMemoryNeedsItsBarrier) {
  std::vector<int> from(96), expected(96);
  std::iota(from.begin(), from.end(), 1);
  for (int i = 0; i < 96; ++i) expected[static_cast<std::size_t>(i)] = -(96 - i);
  InAllOrders([&] {
    std::vector<int> to(96);
    Launch(MirrorKernel<true>, 1, 96, 96 * sizeof(int), from.data(), to.data());
    EXPECT_EQ(to, expected);
    Launch(MirrorKernel<false>, 1, 96, 96 * sizeof(int), from.data(), to.data());
    EXPECT_NE(to, expected);
  });
}

__global__ void FirstByteKernel(unsigned char* value) { *value = *SharedMemory<unsigned char>(); }

TEST_F(CudaOnCpu, DynamicSharedMemoryStartsPoisonedInEveryBlock) {
  std::vector<int> scratch(96), to(96);
  Launch(MirrorKernel<true>, 1, 96, 96 * sizeof(int), scratch.data(), to.data());
  unsigned char value = 0;
  Launch(FirstByteKernel, 1, 1, 1, &value);
  EXPECT_EQ(value, 0xCB);
}

struct WarpResults {
  float from_three, in_group, partner, down, up, sum;
  double sum_of_double;
  unsigned ballot;
  int any, all;
};

__global__ void WarpKernel(WarpResults* results) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const auto value = static_cast<float>(thread);
  results[thread] = {.from_three = __shfl_sync(kAllLanes, value, 3),
                     .in_group = __shfl_sync(kAllLanes, value, 9, 8),
                     .partner = __shfl_xor_sync(kAllLanes, value, 5),
                     .down = __shfl_down_sync(kAllLanes, value, 3),
                     .up = __shfl_up_sync(kAllLanes, value, 3, 16),
                     .sum = WarpSum(value),
                     .sum_of_double = WarpSum(1.0 / (1 + lane)),
                     .ballot = __ballot_sync(kAllLanes, lane % 3 == 0),
                     .any = __any_sync(kAllLanes, thread == 40),
                     .all = __all_sync(kAllLanes, thread < 40)};
}

TEST_F(CudaOnCpu, ShufflesAndVotesOfWholeWarps) {
  double harmonic = 0;
  for (int i = 1; i <= 32; ++i) harmonic += 1.0 / i;
  InAllOrders([&] {
    std::vector<WarpResults> results(64);
    Launch(WarpKernel, 1, 64, 0, results.data());
    for (int thread = 0; thread < 64; ++thread) {
      const int lane = thread % 32, first = thread - lane;
      const WarpResults& got = results[static_cast<std::size_t>(thread)];
      EXPECT_EQ(got.from_three, first + 3);
      EXPECT_EQ(got.in_group, first + lane / 8 * 8 + 1);
      EXPECT_EQ(got.partner, first + (lane ^ 5));
      EXPECT_EQ(got.down, lane < 29 ? thread + 3 : thread);
      EXPECT_EQ(got.up, lane % 16 >= 3 ? thread - 3 : thread);
      EXPECT_EQ(got.sum, 32 * first + 31 * 16);
      EXPECT_NEAR(got.sum_of_double, harmonic, 1e-14);
      EXPECT_EQ(got.sum_of_double, results[0].sum_of_double);
      EXPECT_EQ(got.ballot, 0x49249249u);
      EXPECT_EQ(got.any, first == 32);
      EXPECT_EQ(got.all, first == 0);
    }
  });
}

__global__ void HalvesKernel(unsigned* even, int* from_last) {
  const unsigned lane = threadIdx.x % 32, mask = lane % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  even[threadIdx.x] = __ballot_sync(mask, 1);
  from_last[threadIdx.x] = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x), 31);
}

// 44 threads: the second warp has lanes 0 to 11 only.
TEST_F(CudaOnCpu, PartialWarpsAndPartialMasks) {
  InAllOrders([] {
    std::vector<unsigned> even(44);
    std::vector<int> from_last(44);
    Launch(HalvesKernel, 1, 44, 0, even.data(), from_last.data());
    EXPECT_EQ(even[0], 0x55555555u);
    EXPECT_EQ(even[1], 0xaaaaaaaau);
    EXPECT_EQ(even[32], 0x555u);
    EXPECT_EQ(even[33], 0xaaau);
    EXPECT_EQ(from_last[5], 31);
    EXPECT_EQ(from_last[40], static_cast<int>(0xCBCBCBCB));  // nobody is there
  });
}

__global__ void BlockSumKernel(int size, const float* x, float* sums) {
  __shared__ float parts[2][kMostWarps];
  float sum = 0, square_sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < size; i += static_cast<int>(blockDim.x)) {
    sum += x[i];
    square_sum += x[i] * x[i];
  }
  sums[2 * threadIdx.x] = BlockSum(sum, parts[0]);
  sums[2 * threadIdx.x + 1] = BlockSum(square_sum, parts[1]);
}

TEST_F(CudaOnCpu, BlockSumsHaveTheSameBitsForAllThreadsInAllOrders) {
  const Floats x = Normals(1, 5000);
  double sum = 0, square_sum = 0;
  for (const float value : x) {
    sum += value;
    square_sum += static_cast<double>(value) * value;
  }
  Floats first;
  InAllOrders([&] {
    Floats sums(2 * 192);
    Launch(BlockSumKernel, 1, 192, 0, 5000, x.data(), sums.data());
    ExpectClose({sums[0], sums[1]}, {sum, square_sum}, 1e-5);
    for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i], sums[i % 2]);
    if (first.empty()) first = sums;
    EXPECT_EQ(sums, first);
  });
}

template <typename T, bool kWide>
__global__ void CopyKernel(int size, const T* from, T* to) {
  float values[kVector];
  LoadValues<kWide>(from, static_cast<int>(threadIdx.x) * kVector, size, values);
  StoreValues<kWide>(to, static_cast<int>(threadIdx.x) * kVector, size, values);
}

TEST_F(CudaOnCpu, VectorsKeepValuesAndTheirEnds) {
  for (const int size : {4, 17, 64}) {
    const Floats from = Normals(1, size);
    std::vector<Bfloat16> narrow_from, narrow_to(static_cast<std::size_t>(size) + 4, Bfloat16{7});
    for (const float value : from) narrow_from.push_back(ToBfloat16(value));
    Floats to(static_cast<std::size_t>(size) + 4, 7.0f);
    const bool wide = CanBeWide(size, from.data(), to.data(), narrow_from.data(), narrow_to.data());
    EXPECT_EQ(wide, size % 4 == 0);
    Launch(wide ? CopyKernel<float, true> : CopyKernel<float, false>, 1, 32, 0, size, from.data(), to.data());
    Launch(wide ? CopyKernel<Bfloat16, true> : CopyKernel<Bfloat16, false>, 1, 32, 0, size, narrow_from.data(),
           narrow_to.data());
    EXPECT_EQ(Slice(to, 0, size), from);
    EXPECT_EQ(Slice(to, size, 4), Floats(4, 7.0f));
    narrow_from.insert(narrow_from.end(), 4, Bfloat16{7});
    EXPECT_EQ(narrow_to, narrow_from);
  }
}

__global__ void DivergentKernel() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void TwoBarriersKernel() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void MaskOfOthersKernel() { __syncwarp(0x0000ffffu); }
__global__ void MixedKernel(int* to) {
  if (threadIdx.x == 0) {
    __syncwarp();
  } else {
    to[threadIdx.x] = __shfl_sync(kAllLanes, 1, 0);
  }
}
TEST_F(CudaOnCpuDeathTest, NamesTheThreadsThatWait) {
  std::vector<int> to(64);
  EXPECT_DEATH(Launch(DivergentKernel, dim3(1, 1), 64, 0),
               "block \\(0, 0, 0\\) of the launch at .*cuda_on_cpu_test.cpp.*threads wait for each other.*\n"
               ".*threads 40-63 have returned\n.*threads 0-39 wait at .*DivergentKernel");
  EXPECT_DEATH(Launch(TwoBarriersKernel, 1, 64, 0), "threads 0-31 wait at .*\n.*threads 32-63 wait at");
  EXPECT_DEATH(Launch(MixedKernel, 1, 32, 0, to.data()), "thread 1 at .* meets lanes of its warp that are at");
}

// What nvcc makes one instruction of global memory of, given something else.
enum class Where { kGlobal, kStatic, kDynamic, kLocal };
__global__ void StoreKernel(Where where, float* global) {
  __shared__ __align__(16) float fixed[4];
  __align__(16) float local[4];
  float* const to[] = {global, fixed, SharedMemory<float>(), local};
  const float values[4] = {1, 2, 3, 4};
  StoreWide(to[static_cast<int>(where)], values);
}
TEST_F(CudaOnCpuDeathTest, NamesWhoStoresWideToOtherThanGlobalMemory) {
  Floats to(4);
  Launch(StoreKernel, 1, 1, 16, Where::kGlobal, to.data());
  EXPECT_EQ(to, (Floats{1, 2, 3, 4}));
  for (const Where where : {Where::kStatic, Where::kDynamic}) {
    EXPECT_DEATH(Launch(StoreKernel, 1, 1, 16, where, to.data()), "thread 0 gives shared memory to an instruction of");
  }
  EXPECT_DEATH(Launch(StoreKernel, 1, 1, 16, Where::kLocal, to.data()), "thread 0 gives memory of its own to an");
}

TEST_F(CudaOnCpuDeathTest, RefusesWhatNoDeviceTakes) {
  EXPECT_DEATH(Launch(MaskOfOthersKernel, 1, 32, 0), "thread 16 is not in its own mask 0xffff");
  EXPECT_DEATH(Launch(DivergentKernel, 1, dim3(32, 33), 0), "a block of 1056 threads; 1 to 1024 are possible");
  EXPECT_DEATH(Launch(DivergentKernel, 1, 0, 0), "a block of 0 threads");
}

TEST_F(CudaOnCpu, RefusesAnUnknownOrder) {
  setenv("SPOTLIGHT_CUDA_ORDER", "sideways", 1);
  EXPECT_THROW(Launch(MaskOfOthersKernel, 1, 1, 0), UserError);
}

}  // namespace
}  // namespace spotlight::cuda
