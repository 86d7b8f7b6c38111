#include "model/qwen_vae.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "kernels/operations_kokkos.hpp"

namespace spotlight {
namespace {

constexpr Index kPixels = 8;  // image pixels that a latent pixel covers, each way
constexpr Index kColours = 3;

// Reads the decoder's tensors, noting all that do not fit.
class DecoderTensors {
 public:
  explicit DecoderTensors(const TensorSource& source) : source_(source) {}

  // <name>.weight [out, in, frames, taps, taps], or [out, in, taps, taps] if frames is 0, and <name>.bias [out].
  struct ConvolutionTensors {
    std::vector<float> weight;  // [out, in, taps, taps] of the last frame
    std::vector<float> bias;
  };
  ConvolutionTensors ReadConvolution(const std::string& name, Index in, Index out, Index frames, Index taps) {
    Shape shape{out, in, taps, taps};
    if (frames > 0) shape.insert(shape.begin() + 2, frames);
    ConvolutionTensors result{Read(name + ".weight", shape), Read(name + ".bias", {out})};
    if (frames > 1) {
      std::vector<float> last;
      last.reserve(result.weight.size() / static_cast<std::size_t>(frames));
      const Index area = taps * taps;
      for (Index kernel = 1; kernel <= out * in; ++kernel) {
        const auto end = result.weight.begin() + kernel * frames * area;
        last.insert(last.end(), end - area, end);
      }
      result.weight = std::move(last);
    }
    return result;
  }

  // A convolution in space and time, as seen by a single frame; the kernel has as many frames as taps.
  Convolution ReadCausal(const std::string& name, Index in, Index out, Index taps) {
    const ConvolutionTensors tensors = ReadConvolution(name, in, out, taps, taps);
    return SamePadded(in, out, taps, tensors.weight, tensors.bias);
  }

  // `dimensions` of the tensor, all 1 after the first.
  Buffer ReadGamma(const std::string& name, Index channels, std::size_t dimensions) {
    Shape shape(dimensions, 1);
    shape[0] = channels;
    Buffer gamma(channels);
    gamma.CopyFromHost(Read(name + ".gamma", shape));
    return gamma;
  }

  ResidualBlock ReadResidual(const std::string& name, Index in, Index out) {
    ResidualBlock block{.norm1 = ReadGamma(name + ".norm1", in, 4),
                        .conv1 = ReadCausal(name + ".conv1", in, out, 3),
                        .norm2 = ReadGamma(name + ".norm2", out, 4),
                        .conv2 = ReadCausal(name + ".conv2", out, out, 3),
                        .shortcut = {}};
    if (in != out) block.shortcut = ReadCausal(name + ".conv_shortcut", in, out, 1);
    return block;
  }

  PixelAttention ReadAttention(const std::string& name, Index channels) {
    const ConvolutionTensors qkv = ReadConvolution(name + ".to_qkv", channels, 3 * channels, 0, 1);
    const auto part = [&](Index which) {
      const auto count = static_cast<std::size_t>(channels), begin = static_cast<std::size_t>(which) * count;
      return SamePadded(channels, channels, 1, std::span(qkv.weight).subspan(begin * count, count * count),
                        std::span(qkv.bias).subspan(begin, count));
    };
    const ConvolutionTensors proj = ReadConvolution(name + ".proj", channels, channels, 0, 1);
    return {.norm = ReadGamma(name + ".norm", channels, 3),
            .query = part(0),
            .key = part(1),
            .value = part(2),
            .proj = SamePadded(channels, channels, 1, proj.weight, proj.bias)};
  }

  void RequireAll() const {
    if (mistakes_.empty()) return;
    const std::string more = mistakes_.size() == 1 ? "" : " (and " + std::to_string(mistakes_.size() - 1) + " more)";
    throw UserError(source_.place() + ": " + mistakes_.front() + more + "; the decoder of vae/config.json takes " +
                    std::to_string(count_) +
                    " tensors, post_quant_conv.* and decoder.*. Check that both files are of one model");
  }

 private:
  // Zeros in place of a tensor that does not fit.
  std::vector<float> Read(const std::string& name, const Shape& shape) {
    ++count_;
    std::vector<float> values(static_cast<std::size_t>(NumElements(shape)));
    if (!source_.Has(name)) {
      mistakes_.push_back("tensor " + name + " " + ToString(shape) + " is missing");
    } else if (const Shape seen = source_.ShapeOf(name); seen != shape) {
      mistakes_.push_back("tensor " + name + " is " + ToString(seen) + ", expected " + ToString(shape));
    } else {
      source_.Read(name, values);
    }
    return values;
  }

  const TensorSource& source_;
  std::vector<std::string> mistakes_;
  int count_ = 0;
};

}  // namespace

QwenVae::Network QwenVae::Load(const VaeConfig& config, const TensorSource& weights) {
  DecoderTensors tensors(weights);
  const Index z = config.z_dim, base = config.base_dim;
  const Index deepest = base * config.dim_mult.back();
  const std::string middle = "decoder.mid_block";
  Network network{.post_quant = tensors.ReadCausal("post_quant_conv", z, z, 1),
                  .in = tensors.ReadCausal("decoder.conv_in", z, deepest, 3),
                  .middle0 = tensors.ReadResidual(middle + ".resnets.0", deepest, deepest),
                  .attention = tensors.ReadAttention(middle + ".attentions.0", deepest),
                  .middle1 = tensors.ReadResidual(middle + ".resnets.1", deepest, deepest),
                  .levels = {},
                  .head = {tensors.ReadGamma("decoder.norm_out", base * config.dim_mult.front(), 4),
                           tensors.ReadCausal("decoder.conv_out", base * config.dim_mult.front(), kColours, 3)}};
  Index in = deepest;
  const Index count = static_cast<Index>(config.dim_mult.size());
  for (Index i = 0; i < count; ++i) {
    const std::string name = "decoder.up_blocks." + std::to_string(i);
    const Index out = base * config.dim_mult[static_cast<std::size_t>(count - 1 - i)];
    Level level;
    for (int block = 0; block <= config.num_res_blocks; ++block) {
      level.blocks.push_back(tensors.ReadResidual(name + ".resnets." + std::to_string(block), in, out));
      in = out;
    }
    if (i + 1 < count) {
      const auto resample = tensors.ReadConvolution(name + ".upsamplers.0.resample.1", in, in / 2, 0, 3);
      level.upsampling = MakeUpsampling(in, in / 2, resample.weight, resample.bias);
      in /= 2;
    }
    network.levels.push_back(std::move(level));
  }
  tensors.RequireAll();
  return network;
}

QwenVae::QwenVae(const VaeConfig& config, const TensorSource& weights, Index band_floats)
    : config_(config), band_floats_(band_floats), network_(Load(config, weights)) {}

std::vector<float> QwenVae::DecodeLatents(std::span<const float> latents, Index rows, Index columns,
                                          const Observer& observe) const {
  const Index z = config_.z_dim, pixels = rows * columns;
  SPOTLIGHT_REQUIRE(pixels > 0 && static_cast<Index>(latents.size()) == z * pixels, "latents of another size");
  std::vector<float> host(latents.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    const std::size_t channel = i % static_cast<std::size_t>(z), pixel = i / static_cast<std::size_t>(z);
    host[i] = latents[channel * static_cast<std::size_t>(pixels) + pixel] * config_.latents_std[channel] +
              config_.latents_mean[channel];
  }
  FeatureMap x(rows, columns, z);
  x.values.CopyFromHost(host);
  const auto show = [&](const std::string& name) {
    if (observe) observe(name, x);
  };
  show("denormalized");
  BandMemory memory{.floats = band_floats_, .first = {}, .second = {}};
  x = Apply(network_.post_quant, x);
  show("post_quant_conv");
  x = Apply(network_.in, x);
  show("conv_in");
  x = Apply(network_.middle0, std::move(x), memory);
  show("mid_resnet0");
  x = Apply(network_.attention, std::move(x));
  show("mid_attn");
  x = Apply(network_.middle1, std::move(x), memory);
  show("mid_block");
  for (std::size_t i = 0; i < network_.levels.size(); ++i) {
    for (const ResidualBlock& block : network_.levels[i].blocks) x = Apply(block, std::move(x), memory);
    if (network_.levels[i].upsampling.has_value()) x = Apply(*network_.levels[i].upsampling, x);
    show("up_block" + std::to_string(i));
  }
  if (observe) {
    FeatureMap normed(x.rows, x.columns, x.channels);
    NormPixels(x.rows * x.columns, x.channels, x.values.data(), network_.head.norm.data(), false, normed.values.data());
    observe("norm_out", normed);
  }
  x = Apply(network_.head, x, memory);
  std::vector<float> image(static_cast<std::size_t>(x.values.size()));
  x.values.CopyToHost(image);
  for (float& value : image) value = std::clamp(value, -1.0f, 1.0f);
  return image;
}

Image QwenVae::Decode(std::span<const float> packed, Index h, Index w) const {
  SPOTLIGHT_REQUIRE(static_cast<Index>(packed.size()) == h * w * 4 * channels(), "packed latents of another size");
  std::vector<float> latents(packed.size());  // [z_dim, 2h, 2w]
  kokkos::UnpackLatents(1, channels(), h, w, packed.data(), latents.data());
  Image image{static_cast<int>(2 * h * kPixels), static_cast<int>(2 * w * kPixels),
              DecodeLatents(latents, 2 * h, 2 * w)};
  for (float& value : image.rgb) value = value / 2 + 0.5f;
  return image;
}

}  // namespace spotlight
