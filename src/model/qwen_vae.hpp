// The decoder of Qwen-Image's autoencoder (diffusers' AutoencoderKLQwenImage) for single images: latents of 1/8 of the
// image's side -> RGB.
//
// The model is a causal video autoencoder. With one frame every 3-D convolution sees two zero frames before the image,
// so it is the 2-D convolution with the last temporal slice of its kernel; only that slice is kept. The encoder,
// quant_conv and the temporal upsamplers' time_conv are not read.
//
// fp32. Memory: the weights (25 million floats of the published model, 0.1 GB), the largest feature map, which all
// blocks update in place, beside the map of a quarter of its pixels that it is made from, and 32 MiB of working rows:
// of an image of s x s pixels 4 s^2 (base_dim + base_dim / 2) bytes of maps, 0.15 GB at 512 and 0.94 GB at 1280 pixels.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_source.hpp"
#include "base/vae_config.hpp"
#include "model/image_decoder.hpp"
#include "model/vae_blocks.hpp"

namespace spotlight {

class QwenVae : public ImageDecoder {
 public:
  // Receives the maps within the decoder, [rows, columns, channels], for comparison with the reference.
  using Observer = std::function<void(const std::string& name, const FeatureMap& map)>;

  static constexpr Index kBandFloats = 1 << 22;

  // Tensors under their names in the checkpoint. UserError in one message that names the place and the tensors, if any
  // is missing or of another shape. A band of working rows holds about `band_floats`; it changes no bit.
  QwenVae(const VaeConfig& config, const TensorSource& weights, Index band_floats = kBandFloats);

  Index channels() const override { return config_.z_dim; }
  Image Decode(std::span<const float> packed, Index h, Index w) const override;

  // latents [z_dim, rows, columns] as the transformer makes them -> image [8 rows, 8 columns, 3] clamped to [-1, 1].
  // `observe` is shown denormalized, post_quant_conv, conv_in, mid_resnet0, mid_attn, mid_block, up_block<i> and
  // norm_out (before its SiLU).
  std::vector<float> DecodeLatents(std::span<const float> latents, Index rows, Index columns,
                                   const Observer& observe = {}) const;

 private:
  struct Level {
    std::vector<ResidualBlock> blocks;
    std::optional<UpsamplingConvolution> upsampling;  // of all but the last
  };
  struct Network {
    Convolution post_quant, in;
    ResidualBlock middle0;
    PixelAttention attention;
    ResidualBlock middle1;
    std::vector<Level> levels;
    OutputHead head;
  };
  static Network Load(const VaeConfig& config, const TensorSource& weights);

  VaeConfig config_;
  Index band_floats_;
  Network network_;
};

}  // namespace spotlight
