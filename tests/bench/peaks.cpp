#include "tests/bench/peaks.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernels/operations.hpp"

namespace spotlight {

Peaks MeasurePeaks(const BenchSizes& sizes, DeviceMeter& meter) {
  constexpr int kCopies = 20;  // the first one warms up, and is never the fastest
  Peaks peaks;
  {
    const std::int64_t floats = sizes.copy_bytes / SizeOf(ElementType::kFp32);
    Arrays arrays;
    const float* from = arrays.Read(floats);
    float* to = arrays.Write(floats);
    for (int i = 0; i < kCopies; ++i) {
      meter.Start();
      meter.Copy(to, from, static_cast<std::size_t>(sizes.copy_bytes));
      peaks.bytes_per_s = std::max(peaks.bytes_per_s, static_cast<double>(2 * sizes.copy_bytes) / meter.Stop());
    }
  }
  const std::int64_t side = sizes.product_side;
  const bool cuda = std::string_view(ActiveOperations().name) == "cuda";
  const ElementType type = cuda ? ElementType::kBf16 : ElementType::kFp32;
  Arrays arrays;
  const ConstActivations a = arrays.Read(side * side, type), b = arrays.Read(side * side, type);
  const Activations c = arrays.Write(side * side, type);
  peaks.flops_per_s = 2 * std::pow(static_cast<double>(side), 3) / meter.ProductSeconds(side, a.data, b.data, c.data);
  return peaks;
}

std::string Quoted(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '"' || c == '\\' || (c >= 0 && c < ' '); }, ' ');
  return '"' + text + '"';
}

}  // namespace spotlight
