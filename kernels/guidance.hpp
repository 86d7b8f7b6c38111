// True classifier-free guidance with the per-token norm rescale (Qwen-Image pipeline):
//   u = uncond + s (cond - uncond),   v = u |cond| / |u|, norms over the channels of a token, no epsilon.
#pragma once

#include <cstdint>

namespace spotlight {

// pairs [B, 2, size]: of each sample the conditional velocity, then the unconditional one; v [B, size] with `channels`
// numbers a token.
void GuidanceForward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                     float* v);
// Through both norms and both branches; dpairs [B, 2, size] is overwritten.
void GuidanceBackward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                      const float* dv, float* dpairs);

}  // namespace spotlight
