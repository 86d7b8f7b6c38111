// One small value for each sample of a batch, as an argument of a kernel, like the tables of batch_rows.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/batch_rows.cuh"

namespace spotlight::cuda {

// T: at most 24 bytes, so that the table and a dozen other arguments fit into the 4 KiB of a launch.
template <typename T>
struct SampleTable {
  static_assert(sizeof(T) <= 24 && std::is_trivially_copyable_v<T>);
  T at[kMostSamples];
};

// value(sample) for samples [begin, begin + count), count <= kMostSamples.
template <typename T, typename Value>
SampleTable<T> TableOf(std::int64_t begin, std::int64_t count, const Value& value) {
  SampleTable<T> table{};
  for (std::int64_t b = 0; b < count; ++b) table.at[b] = value(begin + b);
  return table;
}

}  // namespace spotlight::cuda
