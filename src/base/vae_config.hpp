// Sizes of a Qwen-Image autoencoder, under the names of diffusers' vae/config.json; defaults are the published model's.
#pragma once

#include <array>
#include <vector>

namespace spotlight {

struct VaeConfig {
  int base_dim = 96;                        // channels at full resolution
  int z_dim = 16;                           // latent channels
  std::array<int, 4> dim_mult{1, 2, 4, 4};  // channels at 1, 1/2, 1/4 and 1/8 of the resolution, over base_dim
  int num_res_blocks = 2;                   // residual blocks of a level; the decoder has one more
  // z_dim entries each: the decoder takes z * latents_std + latents_mean.
  std::vector<float> latents_mean{-0.7571f, -0.7089f, -0.9113f, 0.1075f,  -0.1745f, 0.9653f,  -0.1517f, 1.5508f,
                                  0.4134f,  -0.0715f, 0.5517f,  -0.3632f, -0.1922f, -0.9497f, 0.2503f,  -0.2921f};
  std::vector<float> latents_std{2.8184f, 1.4541f, 2.3275f, 2.6558f, 1.2196f, 1.7708f, 2.6052f, 2.0743f,
                                 3.2687f, 2.1526f, 2.8652f, 1.5579f, 1.6382f, 1.1253f, 2.8251f, 1.9160f};
};

}  // namespace spotlight
