// Counter-based random numbers: the same noise on any rank, in any order, for any batch.
//
// Philox4x32-10 (Salmon et al., SC'11). A stream is named by a 64-bit key; element i of the stream
// is a pure function of (key, i). Normal deviates use Box-Muller with our own logarithm, sine and
// cosine, built from correctly rounded operations only (+, *, fma, sqrt), so that every back end
// (and every libm) gives the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

namespace spotlight {

// One Philox4x32-10 block.
std::array<std::uint32_t, 4> Philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high);

// Key of a noise stream: a 64-bit mix of the parts, in order.
std::uint64_t StreamKey(std::initializer_list<std::uint64_t> parts);

// Fills `out` with standard normal deviates: out[i] is element (first + i) of the stream `key`.
// `first` must be a multiple of 4.
void FillNormal(std::uint64_t key, std::uint64_t first, std::span<float> out);

// A uniform integer in [0, bound) and a uniform double in [0, 1): element `index` of the stream.
std::uint64_t UniformInt(std::uint64_t key, std::uint64_t index, std::uint64_t bound);
double UniformDouble(std::uint64_t key, std::uint64_t index);

// Noise of one denoising step of a seed: step -1 is the initial latent.
inline std::uint64_t NoiseKey(std::uint64_t run_seed, std::uint64_t prompt_id, std::uint64_t seed, int step) {
  return StreamKey({0x6e6f697365ULL, run_seed, prompt_id, seed, static_cast<std::uint64_t>(step + 1)});
}

}  // namespace spotlight
