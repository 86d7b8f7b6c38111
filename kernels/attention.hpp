// Joint softmax attention over text and image tokens (text first), forward and backward.
//
// Letters: B batch, H heads, D head size; sample b has T_b text tokens and S_b image tokens, N_b = T_b + S_b. Attention
// layout: sample b is [H, N_b, D], samples follow each other without gaps (kernels/token_rows.hpp).
// softmax(q k^T / sqrt(D)) v per head; masked text tokens are invisible as keys to every query (as
// queries they still run). Streaming softmax: no [N, N] matrix is kept; the log-sum-exp is saved.
// A sample's result does not depend on the rest of the batch; key blocks are visited in a fixed order.
#pragma once

#include <cstdint>

#include "kernels/activations.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

struct AttentionShape {
  TokenRows text, image;       // rows of both streams, of the same B samples
  std::int64_t heads = 0;      // H
  std::int64_t head_size = 0;  // D, a multiple of 2
};

// q, k, v in attention layout. text_mask: one of 1 (real) and 0 per text row, or null for all real.
// out_text [text rows, H*D] and out_image [image rows, H*D]; lse: as q with D = 1. out_text may be null: the text's
// queries are then left out, and their lse (the last block).
void AttentionForward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                      const std::uint8_t* text_mask, Activations out_text, Activations out_image, float* lse);

// Gradients of q, k, v in attention layout (overwritten) from those of the outputs. dout_text may be null: the
// text output is not used (last block). out_* and lse are the forward's results.
void AttentionBackward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                       const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image,
                       const float* lse, ConstActivations dout_text, ConstActivations dout_image, Activations dq,
                       Activations dk, Activations dv);

}  // namespace spotlight
