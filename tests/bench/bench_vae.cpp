// Time of decoding one image with Qwen-Image's autoencoder at its real size, beside scripts/bench/diffusers_vae.py.
//
//   OMP_NUM_THREADS=2 bench_vae [REPEATS [PIXELS...]]      3 repeats of 256 and 512 pixels a side by default
//
// fp32, random weights. thread_peak_gflops: a product of 1024 x 3072 x 3072, measured here, per second of CPU time. The
// shares are the operations that the decoder does (3x3 convolutions in two dimensions, the upsampling ones as four of
// 2x2, the attention) per second of CPU time over that peak.
// Prints {"benchmark": "vae", "threads": n, "pixels256": {"median_s", "min_s", "cpu_s"}, "pixels512": {...},
// "thread_peak_gflops": g, "share256": f, "share512": f, "peak_mib": m}.
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "kernels/linear.hpp"
#include "kernels/runtime.hpp"
#include "model/qwen_vae.hpp"
#include "tests/bench/timing.hpp"

namespace spotlight {
namespace {

// The tensors of a decoder: normals that keep the size of what goes through them, gammas one.
class RandomSource : public TensorSource {
 public:
  explicit RandomSource(const VaeConfig& config) {
    const Index z = config.z_dim, base = config.base_dim, deepest = base * config.dim_mult.back();
    Add("post_quant_conv", {z, z, 1, 1, 1});
    Add("decoder.conv_in", {deepest, z, 3, 3, 3});
    AddResidual("decoder.mid_block.resnets.0", deepest, deepest);
    AddResidual("decoder.mid_block.resnets.1", deepest, deepest);
    shapes_["decoder.mid_block.attentions.0.norm.gamma"] = {deepest, 1, 1};
    Add("decoder.mid_block.attentions.0.to_qkv", {3 * deepest, deepest, 1, 1});
    Add("decoder.mid_block.attentions.0.proj", {deepest, deepest, 1, 1});
    Index in = deepest;
    for (std::size_t i = 0; i < config.dim_mult.size(); ++i) {
      const std::string name = "decoder.up_blocks." + std::to_string(i);
      const Index out = base * config.dim_mult[config.dim_mult.size() - 1 - i];
      for (int block = 0; block <= config.num_res_blocks; ++block) {
        AddResidual(name + ".resnets." + std::to_string(block), in, out);
        in = out;
      }
      if (i + 1 == config.dim_mult.size()) continue;
      Add(name + ".upsamplers.0.resample.1", {in / 2, in, 3, 3});
      in /= 2;
    }
    shapes_["decoder.norm_out.gamma"] = {base, 1, 1, 1};
    Add("decoder.conv_out", {3, base, 3, 3, 3});
  }

  const std::string& place() const override { return place_; }
  std::vector<std::string> Names() const override { return {}; }
  bool Has(const std::string& name) const override { return shapes_.contains(name); }
  Shape ShapeOf(const std::string& name) const override { return shapes_.at(name); }
  void Read(const std::string& name, std::span<float> out) const override {
    const Shape shape = ShapeOf(name);
    FillNormal(out.size(), 0, out);
    const float terms = static_cast<float>(out.size()) / static_cast<float>(shape[0]);
    const float scale = shape.size() == 1 ? 0.01f : 1 / std::sqrt(terms);
    for (float& value : out) value = name.ends_with("gamma") ? 1.0f : scale * value;
  }
  void Read(const std::string&, std::span<Bfloat16>) const override {}

 private:
  void Add(const std::string& name, const Shape& weight) {
    shapes_[name + ".weight"] = weight;
    shapes_[name + ".bias"] = {weight[0]};
  }
  void AddResidual(const std::string& name, Index in, Index out) {
    shapes_[name + ".norm1.gamma"] = {in, 1, 1, 1};
    Add(name + ".conv1", {out, in, 3, 3, 3});
    shapes_[name + ".norm2.gamma"] = {out, 1, 1, 1};
    Add(name + ".conv2", {out, out, 3, 3, 3});
    if (in != out) Add(name + ".conv_shortcut", {out, in, 1, 1, 1});
  }

  std::map<std::string, Shape> shapes_;
  std::string place_ = "random";
};

// Multiplications and additions of one image of side x side pixels, attention included.
double DecoderFlops(const VaeConfig& config, Index side) {
  const double base = config.base_dim, z = config.z_dim, deepest = base * config.dim_mult.back();
  double pixels = static_cast<double>(side / 8) * static_cast<double>(side / 8);
  const auto residual = [](double in, double out) { return 9 * (in + out) * out + (in == out ? 0 : in * out); };
  double products = pixels * (z * z + 9 * z * deepest + 2 * residual(deepest, deepest) + 4 * deepest * deepest) +
                    2 * pixels * pixels * deepest;
  double in = deepest;
  for (std::size_t i = config.dim_mult.size(); i-- > 0;) {
    const double out = base * config.dim_mult[i];
    products += pixels * (residual(in, out) + config.num_res_blocks * residual(out, out));
    in = out;
    if (i == 0) break;
    pixels *= 4;
    products += pixels * 4 * in * in / 2;
    in /= 2;
  }
  return 2 * (products + pixels * 27 * base);
}

double GemmPeak() {
  constexpr Index kRows = 1024, kSize = 3072;
  std::vector<float> x(kRows * kSize), weight(kSize * kSize), y(kRows * kSize);
  FillNormal(1, 0, x);
  FillNormal(2, 0, weight);
  const GemmShape shape{
      .transpose_b = true, .m = kRows, .n = kSize, .k = kSize, .lda = kSize, .ldb = kSize, .ldc = kSize};
  const auto times = Measure(5, [&] { Gemm(shape, x.data(), weight.data(), y.data()); });
  return 2.0 * kRows * kSize * kSize / LeastCpu(times);
}

void Bench(int repeats, const std::vector<Index>& sides) {
  const VaeConfig config;
  const double peak = GemmPeak();
  const QwenVae vae(config, RandomSource(config));
  std::string timings, shares;
  for (const Index side : sides) {
    const Index tokens = side / 16;
    std::vector<float> packed(static_cast<std::size_t>(tokens * tokens * 4 * config.z_dim));
    FillNormal(3, 0, packed);
    const auto times = Measure(repeats, [&] { vae.Decode(packed, tokens, tokens); });
    timings += fmt::format(R"("pixels{}": {{{}}}, )", side, TimingFields(times));
    shares += fmt::format(R"("share{}": {:.3f}, )", side, DecoderFlops(config, side) / LeastCpu(times) / peak);
  }
  fmt::print(R"({{"benchmark": "vae", "threads": {}, {}"thread_peak_gflops": {:.1f}, {}"peak_mib": {:.1f}}})"
             "\n",
             KernelThreads(), timings, peak / 1e9, shares, PeakMebibytes());
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  StartKernels(BenchThreads());
  int code = 0;
  try {
    std::vector<Index> sides;
    for (int i = 2; i < argc; ++i) sides.push_back(CountArgument(argc - i + 1, argv + i - 1, 256));
    Bench(CountArgument(argc, argv, 3), sides.empty() ? std::vector<Index>{256, 512} : sides);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_vae: %s\n", error.what());
    code = 1;
  }
  StopKernels();
  return code;
}
