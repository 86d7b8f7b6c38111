// Normalisation of the channels of every pixel, as the Qwen-Image autoencoder has it (diffusers' QwenImageRMS_norm):
//
//   y = x / max(|x|, 1e-12) sqrt(channels) gamma,   then y sigmoid(y) if `silu`
//
// with the Euclidean norm over the channels: no mean, no bias, no epsilon under the root. fp32; the sum over the
// channels has a fixed order.
#pragma once

#include <cstdint>

namespace spotlight {

// x, y [pixels, channels] (may be the same), gamma [channels].
void NormPixels(std::int64_t pixels, std::int64_t channels, const float* x, const float* gamma, bool silu, float* y);

}  // namespace spotlight
