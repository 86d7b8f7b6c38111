// From one stream's packed projection to attention layout: RMSNorm over each head of q and k, then
// rotary positions; v is only moved. Forward and backward.
//
// Letters: B batch, N tokens of this stream, M tokens of text and image together, H heads, D head size.
// Rope pairs are neighbours (2i, 2i+1): (a, b) -> (a cos - b sin, a sin + b cos).
#pragma once

#include <cstdint>

namespace spotlight {

struct QkRopeShape {
  std::int64_t batch = 0;
  std::int64_t tokens = 0;        // N, of this stream
  std::int64_t joint_tokens = 0;  // M
  std::int64_t first = 0;         // where this stream's tokens start within M
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  float eps = 1e-6f;
};

// qkv [B, N, 3, H, D]; norm weights [D]; cos, sin [N, D/2].
// Writes q, k, v [B, H, M, D] at tokens first .. first + N.
void QkRopeForward(const QkRopeShape& shape, const float* qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, float* q, float* k, float* v);

// dq, dk, dv [B, H, M, D] -> dqkv [B, N, 3, H, D] (overwritten); dnorm_q, dnorm_k [D] += (null: not wanted).
void QkRopeBackward(const QkRopeShape& shape, const float* qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, const float* dq, const float* dk, const float* dv, float* dqkv,
                    float* dnorm_q, float* dnorm_k);

}  // namespace spotlight
