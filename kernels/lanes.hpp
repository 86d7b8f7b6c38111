// Sums with a fixed order that the compiler can vectorise.
//
// A sum of floats must not be reordered by the compiler, so it is written as independent lanes that
// are added in a fixed tree. The order depends on the number of terms alone: not on alignment, batch,
// threads or vector width.
#pragma once

#include <cstdint>

namespace spotlight {

// Sum of term(i) for i in [0, size). `term` must be cheap and free of side effects.
template <typename Real = float, typename Term>
inline Real LaneSum(std::int64_t size, const Term& term) {
  constexpr int kNarrow = 8;  // short rows (a head of 24) still run in vectors
  constexpr int kWide = 32;   // enough chains to hide the latency of the addition
  Real narrow[kNarrow] = {};
  std::int64_t i = 0;
  if (size >= kWide) {
    Real wide[kWide] = {};
    for (; i + kWide <= size; i += kWide) {
      for (int lane = 0; lane < kWide; ++lane) wide[lane] += term(i + lane);
    }
    for (int lane = 0; lane < kNarrow; ++lane) {
      narrow[lane] = (wide[lane] + wide[lane + 8]) + (wide[lane + 16] + wide[lane + 24]);
    }
  }
  for (; i + kNarrow <= size; i += kNarrow) {
    for (int lane = 0; lane < kNarrow; ++lane) narrow[lane] += term(i + lane);
  }
  for (int lane = 0; i + lane < size; ++lane) narrow[lane] += term(i + lane);
  return ((narrow[0] + narrow[4]) + (narrow[2] + narrow[6])) + ((narrow[1] + narrow[5]) + (narrow[3] + narrow[7]));
}

}  // namespace spotlight
