// From latents to pixels: what a rollout needs of an autoencoder.
#pragma once

#include <span>

#include "base/image.hpp"
#include "base/tensor.hpp"

namespace spotlight {

class ImageDecoder {
 public:
  virtual ~ImageDecoder() = default;

  virtual Index channels() const = 0;  // C, of the latents before packing

  // packed [h * w, 4C] latents of an image of (16h, 16w) pixels -> the image, clamped to [0, 1]. The result depends
  // neither on the number of threads nor on images decoded before.
  virtual Image Decode(std::span<const float> packed, Index h, Index w) const = 0;
};

}  // namespace spotlight
