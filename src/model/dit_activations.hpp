// Everything a pass of the transformer leaves behind: what Backward reads and parity tests look at.
// Shapes use the letters of model/dit.hpp; X is S for the image and T for the text stream.
#pragma once

#include <vector>

#include "kernels/attention.hpp"
#include "kernels/buffer.hpp"
#include "model/dit.hpp"

namespace spotlight {

struct StreamActivations {
  Buffer modulation;                  // [U, 6d]
  Buffer input, middle;               // [B, X, d] before the block, and after its attention
  Buffer mean1, rstd1, mean2, rstd2;  // [B, X]
  Buffer normed1, normed2;            // [B, X, d] modulated LayerNorms
  Buffer qkv;                         // [B, X, 3d]
  Buffer attention;                   // [B, X, d] before the output projection
  Buffer attention_out;               // [B, X, d] after it, before the gate
  Buffer mlp_hidden, mlp_act;         // [B, X, 4d] before and after GELU
  Buffer mlp_out;                     // [B, X, d] before the gate
};

struct BlockActivations {
  StreamActivations image, text;
  Buffer q, k, v;  // [B, H, T + S, head size], after norm and rope
  Buffer lse;      // [B, H, T + S]
};

// The text and image streams' rope tables in kernel memory.
struct RopeBuffers {
  Buffer image_cos, image_sin, text_cos, text_sin;
  std::vector<ImageShape> images;  // what the tables were made for
  Index text_tokens = -1;
};

struct DitActivations {
  DitOptions options;
  RopeBuffers rope;
  std::vector<int> level_index;
  Buffer sinusoid;                                // [U, 256]
  Buffer time_hidden, time_act;                   // [U, d] before and after SiLU
  Buffer temb, temb_act;                          // [U, d]
  Buffer text_normed, text_rstd;                  // [B, T, text width], [B, T]
  Buffer image, text;                             // [B, X, d] the running streams
  std::vector<BlockActivations> blocks;           // one per block with keep and no recompute, else one for all
  std::vector<Buffer> image_inputs, text_inputs;  // with recompute: [B, X, d] per block
  Buffer final_modulation;                        // [U, 2d]
  Buffer final_mean, final_rstd;                  // [B, S]
  Buffer normed_out;                              // [B, S, d]

  // Backward's scratch.
  Buffer dimage, dtext;                        // [B, X, d] gradients of the running streams
  Buffer dtemb_act;                            // [U, d]
  Buffer dmodulation_image, dmodulation_text;  // [U, 6d]
  Buffer dq, dk, dv;
  Buffer dbranch, dnormed;  // [B, max X, d]
  Buffer dhidden;           // [B, max X, 4d]
  Buffer dqkv;              // [B, max X, 3d]
  Buffer dattention_image, dattention_text;
  AdaptedLinearOps linear;

  BlockActivations& block(int i) { return blocks.size() == 1 ? blocks[0] : blocks[static_cast<std::size_t>(i)]; }
};

}  // namespace spotlight
