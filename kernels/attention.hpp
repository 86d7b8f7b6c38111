// Joint softmax attention over text and image tokens (text first), forward and backward.
//
// Letters: B batch, H heads, D head size, T text tokens, S image tokens, N = T + S.
// softmax(q k^T / sqrt(D)) v per head; masked text tokens are invisible as keys to every query (as
// queries they still run). Streaming softmax: no [N, N] matrix is kept; the log-sum-exp is saved.
// A sample's result does not depend on the rest of the batch; key blocks are visited in a fixed order.
#pragma once

#include <cstdint>

namespace spotlight {

struct AttentionShape {
  std::int64_t batch = 0;      // B
  std::int64_t heads = 0;      // H
  std::int64_t head_size = 0;  // D, a multiple of 2
  std::int64_t text = 0;       // T
  std::int64_t image = 0;      // S
};

// q, k, v: [B, H, N, D]. text_mask: [B, T] of 1 (real) and 0, or null for all real.
// out_text [B, T, H*D] and out_image [B, S, H*D]; lse [B, H, N]. out_text may be null: the text's queries are then left
// out, and their lse (the last block).
void AttentionForward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                      const std::uint8_t* text_mask, float* out_text, float* out_image, float* lse);

// Gradients of q, k, v [B, H, N, D] (overwritten) from those of the outputs. dout_text may be null: the
// text output is not used (last block). out_* and lse are the forward's results.
void AttentionBackward(const AttentionShape& shape, const float* q, const float* k, const float* v,
                       const std::uint8_t* text_mask, const float* out_text, const float* out_image, const float* lse,
                       const float* dout_text, const float* dout_image, float* dq, float* dk, float* dv);

}  // namespace spotlight
