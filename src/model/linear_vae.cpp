#include "model/linear_vae.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/operations_kokkos.hpp"

namespace spotlight {
namespace {

constexpr Index kPatchValues = LinearVae::kPatch * LinearVae::kPatch * 3;

const std::vector<float>& Tensor(const WeightMap& weights, const std::string& name, const Shape& shape,
                                 const std::string& source) {
  const auto found = weights.find(name);
  if (found == weights.end() || found->second.shape != shape) {
    const std::string seen = found == weights.end() ? "it is missing" : "it is " + ToString(found->second.shape);
    throw UserError(source + ": a linear autoencoder needs the tensor " + name + " " + ToString(shape) + ", but " +
                    seen);
  }
  return found->second.data;
}

}  // namespace

LinearVae::LinearVae(const WeightMap& weights, const std::string& source) {
  const auto enc = weights.find("enc");
  channels_ = enc != weights.end() && enc->second.shape.size() == 2 ? enc->second.shape[1] : 16;
  enc_ = Tensor(weights, "enc", {kPatchValues, channels_}, source);
  dec_ = Tensor(weights, "dec", {channels_, kPatchValues}, source);
  background_ = Tensor(weights, "bg", {3}, source);
}

Image LinearVae::Decode(std::span<const float> packed, Index h, Index w) const {
  SPOTLIGHT_REQUIRE(static_cast<Index>(packed.size()) == h * w * 4 * channels_, "packed latents of another size");
  const Index rows = 2 * h, columns = 2 * w;
  std::vector<float> latents(packed.size());  // [C, 2h, 2w]
  kokkos::UnpackLatents(1, channels_, h, w, packed.data(), latents.data());
  Image image{static_cast<int>(rows * kPatch), static_cast<int>(columns * kPatch), {}};
  image.rgb.resize(static_cast<std::size_t>(rows * kPatch * columns * kPatch * 3));
  constexpr Index kRowValues = kPatch * 3;  // of one pixel row of a patch, which lie side by side in the image too
  float background[kRowValues];
  for (Index i = 0; i < kRowValues; ++i) background[i] = background_[static_cast<std::size_t>(i % 3)];
  for (Index row = 0; row < rows; ++row) {
    for (Index column = 0; column < columns; ++column) {
      float patch[kPatchValues] = {};
      for (Index c = 0; c < channels_; ++c) {
        const float z = latents[static_cast<std::size_t>((c * rows + row) * columns + column)];
        const float* dec = dec_.data() + c * kPatchValues;
        for (Index i = 0; i < kPatchValues; ++i) patch[i] += z * dec[i];
      }
      for (Index y = 0; y < kPatch; ++y) {
        float* pixels = image.rgb.data() + ((row * kPatch + y) * columns + column) * kRowValues;
        const float* values = patch + y * kRowValues;
        for (Index i = 0; i < kRowValues; ++i) pixels[i] = std::clamp(values[i] + background[i], 0.0f, 1.0f);
      }
    }
  }
  return image;
}

std::vector<float> LinearVae::Encode(const Image& image) const {
  SPOTLIGHT_REQUIRE(image.height % kTokenSide == 0 && image.width % kTokenSide == 0, "sides must be multiples of 16");
  const Index rows = image.height / kPatch, columns = image.width / kPatch;
  std::vector<float> latents(static_cast<std::size_t>(channels_ * rows * columns));  // [C, 2h, 2w]
  for (Index row = 0; row < rows; ++row) {
    for (Index column = 0; column < columns; ++column) {
      for (Index i = 0; i < kPatchValues; ++i) {
        const Index y = row * kPatch + i / (kPatch * 3), x = column * kPatch + i / 3 % kPatch;
        const float value = image.rgb[static_cast<std::size_t>((y * image.width + x) * 3 + i % 3)] -
                            background_[static_cast<std::size_t>(i % 3)];
        for (Index c = 0; c < channels_; ++c) {
          latents[static_cast<std::size_t>((c * rows + row) * columns + column)] +=
              value * enc_[static_cast<std::size_t>(i * channels_ + c)];
        }
      }
    }
  }
  std::vector<float> packed(latents.size());
  kokkos::PackLatents(1, channels_, rows / 2, columns / 2, latents.data(), packed.data());
  return packed;
}

}  // namespace spotlight
