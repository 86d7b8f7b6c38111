// The frequencies of the timestep's sinusoid (TimeSinusoid of kernels/activation.hpp), as the reference rounds them:
// f_j = 10000^(-j/128), for every back end.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

namespace spotlight {

constexpr int kTimeFrequencies = 128;

inline std::array<float, kTimeFrequencies> TimeFrequencies() {
  std::array<float, kTimeFrequencies> frequency;  // rounded to fp32 where the reference rounds: exponent, then power
  for (std::size_t j = 0; j < frequency.size(); ++j) {
    const float exponent =
        static_cast<float>(-std::log(10000.0)) * static_cast<float>(j) / static_cast<float>(kTimeFrequencies);
    frequency[j] = static_cast<float>(std::exp(static_cast<double>(exponent)));
  }
  // The reference's exp is not correctly rounded in these two of 128 entries; at t = 1 the unit of the last place moves
  // their cosines by 2e-5, which is more than parity allows.
  for (const std::size_t j : {12, 106}) frequency[j] = std::nextafter(frequency[j], 1.0f);
  return frequency;
}

}  // namespace spotlight
