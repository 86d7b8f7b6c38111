// True classifier-free guidance with the per-token norm rescale (Qwen-Image pipeline):
//   u = uncond + s (cond - uncond),   v = u |cond| / |u|, norms over the channels of a token, no epsilon.
#pragma once

#include <cstdint>

namespace spotlight {

// cond, uncond, v: [rows, channels].
void GuidanceForward(std::int64_t rows, std::int64_t channels, float scale, const float* cond, const float* uncond,
                     float* v);
// Through both norms and both branches; dcond, duncond are overwritten.
void GuidanceBackward(std::int64_t rows, std::int64_t channels, float scale, const float* cond, const float* uncond,
                      const float* dv, float* dcond, float* duncond);

}  // namespace spotlight
