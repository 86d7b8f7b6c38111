// Reuse of denoising steps on CUDA devices (kernels/step_cache.hpp). RowChanges: a warp a row, fp32 sums: a lane's
// quads in ascending order, then a tree. MergeRows works on runs of rows, which travel with the launch: a sample's rows
// are one run, so a batch is one launch.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/sample_table.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kRowsPerBlock = 8;

template <bool kAligned>
__global__ void __launch_bounds__(kRowsPerBlock* kWarpSize)
    RowChangesKernel(std::int64_t rows, int width, const float* x, const float* last, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarpSize;
  if (row >= rows) return;  // the whole warp
  const float *const now = x + row * width, *const then = last + row * width;
  float change = 0, magnitude = 0;
  ForQuads<kAligned>(lane, kWarpSize, width, [&](int j, auto extent) {
    const Quad a = LoadQuad(now + j, extent), b = LoadQuad(then + j, extent);
    for (int k = 0; k < 4; ++k) {
      change += std::abs(a.at[k] - b.at[k]);
      magnitude += std::abs(b.at[k]);
    }
  });
  change = WarpSum(change);
  magnitude = WarpSum(magnitude);
  if (lane == 0) {
    sums[2 * row] = change;
    sums[2 * row + 1] = magnitude;
  }
}

struct DifferenceBody {
  const float *x, *y;
  float* difference;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    Quad rest = LoadQuad(x + at, extent);
    const Quad subtracted = LoadQuad(y + at, extent);
    for (int j = 0; j < 4; ++j) rest.at[j] -= subtracted.at[j];
    StoreQuad(difference + at, rest, extent);
  }
};

// Neighbouring rows that lie in the same order in `computed` from row `place` on, or (-1) nowhere.
struct Run {
  std::int64_t row, rows, place;
};

struct MergedArrays {
  const float *before, *computed;
  float *residual, *after;
};

// Blocks: [quads of the longest run, runs].
template <bool kAligned>
__global__ void __launch_bounds__(kPointwiseThreads)
    MergeRowsKernel(std::int64_t width, __grid_constant__ const SampleTable<Run> runs, MergedArrays arrays) {
  const Run& run = runs.at[blockIdx.y];
  const std::int64_t i = 4 * (static_cast<std::int64_t>(blockIdx.x) * kPointwiseThreads + threadIdx.x);
  const std::int64_t left = run.rows * width - i;
  if (left <= 0) return;
  const std::int64_t at = run.row * width + i;
  const auto merge = [&](auto extent) {
    const Quad before = LoadQuad(arrays.before + at, extent);
    Quad after, residual;
    if (run.place < 0) {
      residual = LoadQuad(arrays.residual + at, extent);
      for (int j = 0; j < 4; ++j) after.at[j] = before.at[j] + residual.at[j];
    } else {
      after = LoadQuad(arrays.computed + run.place * width + i, extent);
      for (int j = 0; j < 4; ++j) residual.at[j] = after.at[j] - before.at[j];
      StoreQuad(arrays.residual + at, residual, extent);
    }
    StoreQuad(arrays.after + at, after, extent);
  };
  if constexpr (kAligned) {
    merge(WholeQuad{});
  } else {
    merge(PartOfQuad{static_cast<int>(left < 4 ? left : 4)});
  }
}

std::vector<Run> RunsOf(std::int64_t rows, const std::int64_t* place) {
  std::vector<Run> runs;
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool goes_on =
        !runs.empty() && (runs.back().place < 0 ? place[row] < 0 : place[row] == runs.back().place + runs.back().rows);
    if (goes_on) {
      ++runs.back().rows;
    } else {
      runs.push_back({row, 1, place[row]});
    }
  }
  return runs;
}

}  // namespace

void RowChanges(std::int64_t rows, std::int64_t width, const float* x, const float* last, float* sums) {
  const bool aligned = width % 4 == 0 && QuadsAligned(rows, width, x, last);
  Launch(aligned ? RowChangesKernel<true> : RowChangesKernel<false>, BlocksFor(rows, kRowsPerBlock),
         kRowsPerBlock * kWarpSize, 0, rows, static_cast<int>(width), x, last, sums);
}

void Subtract(std::int64_t size, const float* x, const float* y, float* difference) {
  Pointwise(1, size, QuadsAligned(1, size, x, y, difference), DifferenceBody{x, y, difference});
}

void MergeRows(std::int64_t rows, std::int64_t width, const std::int64_t* place, const float* before,
               const float* computed, float* residual, float* after) {
  const bool aligned = width % 4 == 0 && QuadsAligned(rows, width, before, computed, residual, after);
  const std::vector<Run> runs = RunsOf(rows, place);
  ForEachChunk(static_cast<std::int64_t>(runs.size()), [&](std::int64_t first, std::int64_t count) {
    std::int64_t longest = 0;
    const auto table = TableOf<Run>(first, count, [&](std::int64_t i) {
      const Run& run = runs[static_cast<std::size_t>(i)];
      longest = std::max(longest, run.rows);
      return run;
    });
    const dim3 grid(BlocksFor(longest * width, std::int64_t{4} * kPointwiseThreads), static_cast<unsigned>(count));
    Launch(aligned ? MergeRowsKernel<true> : MergeRowsKernel<false>, grid, kPointwiseThreads, 0, width, table,
           MergedArrays{before, computed, residual, after});
  });
}

}  // namespace spotlight::cuda
