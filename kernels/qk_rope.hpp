// From one stream's packed projection to attention layout: RMSNorm over each head of q and k, then
// rotary positions; v is only moved. Forward and backward.
//
// Letters: B batch, R rows of this stream, H heads, D head size, P positions of the rope table.
// Attention layout: sample b is [H, M_b, D] with M_b its text tokens and then its image tokens; samples follow each
// other without gaps.
// Rope pairs are neighbours (2i, 2i+1): (a, b) -> (a cos - b sin, a sin + b cos).
#pragma once

#include <cstdint>

#include "kernels/activations.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

struct QkRopeShape {
  TokenRows text, image;
  bool of_image = false;                   // which of the two streams this is
  const std::int64_t* position = nullptr;  // [B] row of the rope table of a sample's first token; null: 0 for all
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  float eps = 1e-6f;
};

// qkv [R, 3, H, D]; norm weights [D]; cos, sin [P, D/2]. Writes this stream's tokens of q, k, v in attention layout.
void QkRopeForward(const QkRopeShape& shape, ConstActivations qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, Activations q, Activations k, Activations v);

// dq, dk, dv in attention layout -> dqkv [R, 3, H, D] (overwritten); dnorm_q, dnorm_k [D] += (null: not wanted).
void QkRopeBackward(const QkRopeShape& shape, ConstActivations qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, ConstActivations dq, ConstActivations dk, ConstActivations dv,
                    Activations dqkv, float* dnorm_q, float* dnorm_k);

}  // namespace spotlight
