// Time of one transformer block of Qwen-Image's real size, beside scripts/bench/diffusers_block.py.
//
//   OMP_NUM_THREADS=2 bench_block [REPEATS]      5 repeats by default
//
// d 3072, 24 heads x 128, 1024 image (32 x 32) + 64 text tokens, batch 1, fp32, random weights. The block runs as a
// model of one layer, so the embeddings of image, text and time and the output head are measured with it (0.3 % more
// operations than the block alone). forward_backward: gradients of all weights and of the image and text inputs;
// frozen: forward and backward with those of the inputs only. bf16: the same with matrices stored in bfloat16. Ours
// computes in fp32 all the same, diffusers in bfloat16. bf16_forward_over_fp32, bf16_frozen_over_fp32: of CPU times.
// thread_peak_gflops: the fastest of the block's own products, measured here, per second of CPU time. The shares are
// the block's operations (products and attention, backward twice the forward) per second of CPU time over that peak.
// Prints {"benchmark": "block", "threads": n, "forward": {"median_s", "min_s", "cpu_s"}, "forward_backward": {...},
// "frozen": {...}, "bf16": {"forward": {...}, "frozen": {...}}, "bf16_forward_over_fp32": f,
// "bf16_frozen_over_fp32": f, "thread_peak_gflops": g, "forward_share": f, "forward_backward_share": f, "peak_mib": m};
// peak_mib is that of fp32.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>

#include "base/random.hpp"
#include "kernels/buffer.hpp"
#include "kernels/linear.hpp"
#include "kernels/runtime.hpp"
#include "model/dit.hpp"
#include "model/weight_storage.hpp"
#include "tests/bench/timing.hpp"

namespace spotlight {
namespace {

constexpr Index kSide = 32, kTextTokens = 64, kTextWidth = 64;

Buffer Normals(std::uint64_t stream, Index size, float scale) {
  std::vector<float> host(static_cast<std::size_t>(size));
  FillNormal(stream, 0, host);
  for (float& value : host) value *= scale;
  Buffer buffer(size);
  buffer.CopyFromHost(host);
  return buffer;
}

// Floating-point operations of the block's forward: per token 12 d^2 multiply-adds; per pair of tokens 2 d.
double BlockFlops(Index d) {
  const double tokens = static_cast<double>(kSide * kSide + kTextTokens), width = static_cast<double>(d);
  return 2 * (tokens * 12 * width * width + 2 * tokens * tokens * width);
}

// The most that the library's products reach on this machine: the best of the layer shapes of the block, 1024 rows.
double GemmPeak(Index d) {
  constexpr Index kRows = 1024;
  const Buffer x = Normals(1, kRows * 4 * d, 1), weight = Normals(2, 4 * d * d, 0.01f);
  Buffer y(kRows * 4 * d);
  double peak = 0;
  for (const auto& [in, out] : {std::pair{d, d}, {d, 3 * d}, {d, 4 * d}, {4 * d, d}}) {
    const std::vector<Seconds> times = Measure(
        5, [&] { LinearForward(kRows, in, out, x.data(), in, {.fp32 = weight.data()}, nullptr, y.data(), out); });
    const double flops = 2.0 * static_cast<double>(kRows * in * out);
    peak = std::max(peak, flops / LeastCpu(times));
  }
  return peak;
}

void Bench(int repeats) {
  TransformerConfig config;
  config.num_layers = 1;
  config.joint_attention_dim = kTextWidth;
  const auto layout = std::make_shared<const DitLayout>(config, LoraSettings{});
  const Index d = config.width(), rows = kSide * kSide;
  const double peak = GemmPeak(d);

  const Buffer weights = Normals(3, layout->base().size(), 0.02f);
  Buffer gradient(layout->base().size());
  const Buffer image = Normals(4, rows * config.in_channels, 1), text = Normals(5, kTextTokens * kTextWidth, 1);
  const Buffer dvelocity = Normals(6, rows * config.in_channels, 1);
  Buffer velocity(rows * config.in_channels), dimage(image.size()), dtext(text.size());
  const DitInput input{.text_tokens = {kTextTokens},
                       .images = {{1, kSide, kSide}},
                       .image = image.data(),
                       .text = text.data(),
                       .levels = {0.5f},
                       .level_index = {0}};
  Dit dit(layout);
  const auto measure_forward = [&](Parameters& parameters) {
    return Measure(repeats, [&] { dit.Forward(parameters, input, {.last_text_branch = true}, velocity.data()); });
  };
  const auto measure_both = [&](Parameters& parameters) {
    return Measure(repeats, [&] {
      if (parameters.Use(DitLayout::kStem).trains_base()) gradient.Zero();
      dit.Forward(parameters, input, {.keep = true, .last_text_branch = true}, velocity.data());
      dit.Backward(parameters, input, dvelocity.data(), {.image = dimage.data(), .text = dtext.data()});
    });
  };
  FlatParameters trained(*layout, weights.data(), gradient.data()), frozen(*layout, weights.data());
  const std::vector<Seconds> forward = measure_forward(frozen), both = measure_both(trained);
  const std::vector<Seconds> frozen_both = measure_both(frozen);
  const double peak_mib = PeakMebibytes();

  WeightStorage rounded(*layout, Precision::kBf16);
  {
    std::vector<float> host(static_cast<std::size_t>(weights.size()));
    weights.CopyToHost(host);
    rounded.Assign(host);
  }
  ResidentParameters bf16(*layout, rounded);
  const std::vector<Seconds> bf16_forward = measure_forward(bf16), bf16_both = measure_both(bf16);
  const auto share = [&](double flops, const std::vector<Seconds>& times) { return flops / LeastCpu(times) / peak; };
  fmt::print(R"({{"benchmark": "block", "threads": {}, "forward": {{{}}}, "forward_backward": {{{}}}, )"
             R"("frozen": {{{}}}, "bf16": {{"forward": {{{}}}, "frozen": {{{}}}}}, )"
             R"("bf16_forward_over_fp32": {:.3f}, "bf16_frozen_over_fp32": {:.3f}, )"
             R"("thread_peak_gflops": {:.1f}, "forward_share": {:.3f}, "forward_backward_share": {:.3f}, )"
             R"("peak_mib": {:.1f}}})"
             "\n",
             KernelThreads(), TimingFields(forward), TimingFields(both), TimingFields(frozen_both),
             TimingFields(bf16_forward), TimingFields(bf16_both), LeastCpu(bf16_forward) / LeastCpu(forward),
             LeastCpu(bf16_both) / LeastCpu(frozen_both), peak / 1e9, share(BlockFlops(d), forward),
             share(3 * BlockFlops(d), both), peak_mib);
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  StartKernels(BenchThreads());
  int code = 0;
  try {
    Bench(CountArgument(argc, argv, 5));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_block: %s\n", error.what());
    code = 1;
  }
  StopKernels();
  return code;
}
