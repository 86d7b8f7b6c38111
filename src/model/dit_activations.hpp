// Everything a pass of the transformer leaves behind: what Backward reads and parity tests look at.
// Letters as in model/dit.hpp; X stands for the rows of the image or text stream that this rank holds. Attention arrays
// hold all tokens of this rank's heads, H' = H / P of a group of P. ActivationBuffers are of the pass' element type.
#pragma once

#include <vector>

#include "kernels/attention.hpp"
#include "kernels/buffer.hpp"
#include "kernels/norm.hpp"
#include "kernels/recordings.hpp"
#include "model/dit.hpp"
#include "model/modulation.hpp"
#include "model/token_shards.hpp"
#include "model/token_sums.hpp"

namespace spotlight {

inline constexpr float kNormEps = 1e-6f;  // of every normalisation in the transformer

// The part `which` (0..5: shift1, scale1, gate1, shift2, scale2, gate2) of a table [levels, 6d].
inline Modulation ModulationPart(const float* table, Index which, Index d, const std::vector<int>& level_index) {
  return {table + which * d, 6 * d, level_index.data()};
}

struct StreamActivations {
  Buffer modulation_values;              // [U, 6d], unless a table has them
  const float* modulation = nullptr;     // [U, 6d]
  Buffer input, middle;                  // [X, d] before the block, and after its attention
  Buffer mean1, rstd1, mean2, rstd2;     // [X]
  ActivationBuffer normed1, normed2;     // [X, d] modulated LayerNorms
  ActivationBuffer qkv;                  // [X, 3d]
  ActivationBuffer attention;            // [X, d] before the output projection
  ActivationBuffer attention_heads;      // [all rows, d / P] the same before the exchange; in a group only
  ActivationBuffer attention_out;        // [X, d] after it, before the gate
  ActivationBuffer mlp_hidden, mlp_act;  // [X, 4d] before and after GELU
  ActivationBuffer mlp_out;              // [X, d] before the gate
};

struct BlockActivations {
  StreamActivations image, text;
  ActivationBuffer q, k, v;  // attention layout, after norm and rope
  Buffer lse;                // attention layout with D = 1
};

// The text and image streams' rope tables in kernel memory.
struct RopeBuffers {
  Buffer image_cos, image_sin, text_cos, text_sin;
  std::vector<ImageShape> images;  // what the tables were made for
  Index text_tokens = -1;          // longest text
};

struct DitActivations {
  explicit DitActivations(ElementType element) : type(element) {}

  const ElementType type;
  DitOptions options;
  TokenShards shards;
  RopeBuffers rope;
  std::vector<int> level_index;  // [B] rows of the modulation arrays
  TimeEmbedding time;
  PassModulation pass_modulation;                 // if there is a table
  ActivationBuffer text_normed;                   // [X, text width]
  Buffer text_rstd;                               // [X]
  Buffer image, text;                             // [X, d] the running streams
  std::vector<BlockActivations> blocks;           // one per block with keep and no recompute, else one for all
  std::vector<Buffer> image_inputs, text_inputs;  // with recompute: [X, d] per block
  Buffer final_modulation_values;                 // [U, 2d], unless a table has them
  const float* final_modulation = nullptr;        // [U, 2d]
  Buffer final_mean, final_rstd;                  // [image rows]
  ActivationBuffer normed_out;                    // [image rows, d]

  // Scratch of a group's exchanges: q, k, v of own tokens, and their gradients.
  ActivationBuffer own_q, own_k, own_v;
  ActivationBuffer dattention_image_heads, dattention_text_heads;  // [all rows, d / P]

  // Backward's scratch.
  Buffer dimage, dtext;                        // [X, d] gradients of the running streams
  Buffer dtemb_act, dtemb_part;                // [U, d] the sum over all layers that read it, and one layer's
  Buffer dfinal_modulation;                    // [U, 2d]
  Buffer dmodulation_image, dmodulation_text;  // [U, 6d]
  ActivationBuffer dq, dk, dv;
  ActivationBuffer dbranch, dnormed;  // [larger X, d]
  ActivationBuffer dhidden;           // [larger X, 4d]
  ActivationBuffer dqkv;              // [larger X, 3d]
  ActivationBuffer dattention_image, dattention_text;
  AdaptedLinearOps linear;
  TokenSums sums;

  Recordings recordings;  // of the blocks

  BlockActivations& block(int i) { return blocks.size() == 1 ? blocks[0] : blocks[static_cast<std::size_t>(i)]; }
};

}  // namespace spotlight
