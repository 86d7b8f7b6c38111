// Sizes of a Qwen-Image transformer, under the names of diffusers' config.json; defaults are the published model's.
#pragma once

#include <array>

namespace spotlight {

struct TransformerConfig {
  int patch_size = 2;            // latent pixels a side that make one token
  int in_channels = 64;          // channels of a packed image token
  int out_channels = 16;         // latent channels; the head gives out_channels * patch_size^2 a token
  int num_layers = 60;           // double-stream blocks
  int attention_head_dim = 128;  // sum of axes_dims_rope
  int num_attention_heads = 24;
  int joint_attention_dim = 3584;                 // width of a text embedding
  std::array<int, 3> axes_dims_rope{16, 56, 56};  // rotary channels of frame, row, column; all even

  int width() const { return num_attention_heads * attention_head_dim; }
};

}  // namespace spotlight
