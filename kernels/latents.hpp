// Latent layouts: noise for a batch of streams, and Qwen-Image's 2x2 packing.
#pragma once

#include <cstdint>

namespace spotlight {

// out [B, n]: row b is the first n normals of the stream keys[b] (base/random.hpp).
void NormalNoise(std::int64_t batch, std::int64_t size, const std::uint64_t* keys, float* out);

// latents [B, C, 2h, 2w] <-> packed [B, h*w, 4C]: feature = channel*4 + dy*2 + dx, token = row*w + column.
void PackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* latents,
                 float* packed);
void UnpackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* packed,
                   float* latents);

}  // namespace spotlight
