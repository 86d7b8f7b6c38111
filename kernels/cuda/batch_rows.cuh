// The small tables of a batch as arguments of kernels: host arrays are copied into structs that travel by value with
// the launch, so that nothing is uploaded and a CUDA graph can hold it. One launch takes up to kMostSamples samples;
// ForEachChunk() makes several of a larger batch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/error.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/norm.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight::cuda {

constexpr std::int64_t kMostSamples = 128;

// TokenRows of some samples: sample b of them owns rows first[b] .. first[b + 1) of the whole batch's arrays.
struct BatchRows {
  int samples = 0;
  int most_tokens = 0;
  int first[kMostSamples + 1] = {};

  BatchRows() = default;
  // Samples begin .. begin + count of `rows`, count <= kMostSamples.
  BatchRows(const TokenRows& rows, std::int64_t begin, std::int64_t count) : samples(static_cast<int>(count)) {
    SPOTLIGHT_REQUIRE(count <= kMostSamples && rows.rows() <= INT32_MAX, "too many rows for one launch");
    for (std::int64_t b = 0; b <= count; ++b) first[b] = static_cast<int>(rows.first[begin + b]);
    for (std::int64_t b = begin; b < begin + count; ++b) {
      most_tokens = std::max(most_tokens, static_cast<int>(rows.tokens(b)));
    }
  }
};

// Modulation (Float: const float) or ModulationGradient (Float: float) of some samples; sample b's row begins at
// data + index[b] * stride. Without an index all samples share row 0.
template <typename Float>
struct BatchModulation {
  Float* data = nullptr;
  std::int64_t stride = 0;
  int index[kMostSamples] = {};

  BatchModulation() = default;
  template <typename Source>
  BatchModulation(const Source& source, std::int64_t begin, std::int64_t count)
      : data(source.data), stride(source.stride) {
    if (data != nullptr && source.index != nullptr) std::copy_n(source.index + begin, count, index);
  }
  __device__ __forceinline__ Float* Row(int sample) const { return data + index[sample] * stride; }
};
using BatchTable = BatchModulation<const float>;

// Calls body(begin, count) for consecutive samples, at most kMostSamples at once, in order.
template <typename Body>
void ForEachChunk(std::int64_t batch, const Body& body) {
  for (std::int64_t begin = 0; begin < batch; begin += kMostSamples) body(begin, std::min(kMostSamples, batch - begin));
}

}  // namespace spotlight::cuda
