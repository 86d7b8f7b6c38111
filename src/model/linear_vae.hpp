// The tiny models' autoencoder: a fixed linear map between 8x8 pixel patches and 16 latent channels,
//   z = (patch - background) enc,   patch = background + z dec,
// with Qwen-Image's geometry: 8x down, 2x2 packing. Patch order: row, column, rgb. z = 0 is background.
#pragma once

#include <span>
#include <vector>

#include "base/image.hpp"
#include "base/tensor.hpp"

namespace spotlight {

class LinearVae {
 public:
  static constexpr Index kPatch = 8;       // pixels a latent pixel covers, each way
  static constexpr Index kTokenSide = 16;  // pixels a packed token covers, each way

  // Tensors enc [192, C], dec [C, 192], bg [3]; UserError naming `source` if one is missing or misshapen.
  LinearVae(const WeightMap& weights, const std::string& source);

  Index channels() const { return channels_; }

  // packed [h * w, 4C] latents of an image of (16h, 16w) pixels -> the image, clamped to [0, 1].
  Image Decode(std::span<const float> packed, Index h, Index w) const;
  // The inverse; image sides must be multiples of 16.
  std::vector<float> Encode(const Image& image) const;

 private:
  Index channels_ = 0;
  std::vector<float> enc_, dec_, background_;
};

}  // namespace spotlight
