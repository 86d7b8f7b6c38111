// The tiny models' autoencoder: a fixed linear map between 8x8 pixel patches and 16 latent channels,
//   z = (patch - background) enc,   patch = background + z dec,
// with Qwen-Image's geometry: 8x down, 2x2 packing. Patch order: row, column, rgb. z = 0 is background.
#pragma once

#include <span>
#include <vector>

#include "base/image.hpp"
#include "base/tensor.hpp"
#include "model/image_decoder.hpp"

namespace spotlight {

class LinearVae : public ImageDecoder {
 public:
  static constexpr Index kPatch = 8;       // pixels a latent pixel covers, each way
  static constexpr Index kTokenSide = 16;  // pixels a packed token covers, each way

  // Tensors enc [192, C], dec [C, 192], bg [3]; UserError naming `source` if one is missing or misshapen.
  LinearVae(const WeightMap& weights, const std::string& source);

  Index channels() const override { return channels_; }

  Image Decode(std::span<const float> packed, Index h, Index w) const override;
  // The inverse of Decode; image sides must be multiples of 16.
  std::vector<float> Encode(const Image& image) const;

 private:
  Index channels_ = 0;
  std::vector<float> enc_, dec_, background_;
};

}  // namespace spotlight
