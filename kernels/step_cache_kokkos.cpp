#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {

void RowChanges(std::int64_t rows, std::int64_t width, const float* x, const float* last, float* sums) {
  ParallelFor("RowChanges", rows, [=](std::int64_t row) {
    const float* now = x + row * width;
    const float* then = last + row * width;
    sums[2 * row] = LaneSum(width, [=](std::int64_t j) { return std::abs(now[j] - then[j]); });
    sums[2 * row + 1] = LaneSum(width, [=](std::int64_t j) { return std::abs(then[j]); });
  });
}

void Subtract(std::int64_t size, const float* x, const float* y, float* difference) {
  ParallelBlocks("Subtract", size, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) difference[i] = x[i] - y[i];
  });
}

void MergeRows(std::int64_t rows, std::int64_t width, const std::int64_t* place, const float* before,
               const float* computed, float* residual, float* after) {
  ParallelFor("MergeRows", rows, [=](std::int64_t row) {
    const float* in = before + row * width;
    float* kept = residual + row * width;
    float* out = after + row * width;
    if (place[row] < 0) {
      for (std::int64_t j = 0; j < width; ++j) out[j] = in[j] + kept[j];
      return;
    }
    const float* result = computed + place[row] * width;
    for (std::int64_t j = 0; j < width; ++j) {
      kept[j] = result[j] - in[j];
      out[j] = result[j];
    }
  });
}

}  // namespace spotlight::kokkos
