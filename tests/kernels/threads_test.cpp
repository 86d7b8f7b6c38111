// The bits of every kernel for 1 thread and for 3. The number is fixed when the back end starts, so the test runs
// this program again, once for each number, and compares what the worker below prints.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "kernels/buffer.hpp"
#include "kernels/convolution.hpp"
#include "kernels/guidance.hpp"
#include "kernels/latents.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/pixel_norm.hpp"
#include "kernels/qk_rope.hpp"
#include "kernels/runtime.hpp"
#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

constexpr std::int64_t kBatch = 3, kTokens = 70, kHeads = 4, kHeadSize = 24, kWidth = kHeads * kHeadSize;
constexpr std::int64_t kSize = kBatch * kTokens * kWidth;

std::uint64_t Hash(const Floats& values) {
  std::uint64_t hash = 1469598103934665603u;  // FNV-1a
  for (const float value : values) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
  return hash;
}

void Print(const char* kernel, const Floats& values) {
  std::printf("bits %s %016llx\n", kernel, static_cast<unsigned long long>(Hash(values)));
}

TEST(ThreadsWorker, DISABLED_PrintBits) {
  std::printf("threads %d\n", KernelThreads());
  const TokenRowTable samples({kTokens, kTokens - 30, kTokens + 30});
  const TokenRows rows = samples.view();
  const Floats x = Normals(1, kSize), dy = Normals(2, kSize), table = Normals(3, kWidth);
  const int index[kBatch] = {0, 0, 0};
  const Modulation modulation = {table.data(), kWidth, index};
  Floats y(x.size()), dx(x.size()), sums(kWidth), mean(kBatch * kTokens), rstd(kBatch * kTokens);
  const ModulationGradient gradient = {sums.data(), kWidth, index};

  LayerNormModulateForward(rows, kWidth, 1e-6f, x.data(), modulation, modulation, y.data(), mean.data(), rstd.data());
  Print("LayerNormModulateForward", y);
  LayerNormModulateBackward(rows, kWidth, x.data(), mean.data(), rstd.data(), modulation, dy.data(), dx.data(),
                            gradient, gradient);
  Print("LayerNormModulateBackward", dx);
  Print("LayerNormModulateBackward/sums", sums);
  RmsNormForward(kBatch * kTokens, kWidth, 1e-6f, x.data(), table.data(), y.data(), rstd.data());
  RmsNormBackward(kBatch * kTokens, kWidth, x.data(), table.data(), rstd.data(), dy.data(), dx.data(), sums.data());
  Print("RmsNorm", dx);
  Print("RmsNorm/sums", sums);
  GatedResidualForward(rows, kWidth, modulation, x.data(), y.data());
  GatedResidualBackward(rows, kWidth, modulation, x.data(), dy.data(), dx.data(), gradient);
  Print("GatedResidual", y);
  Print("GatedResidual/sums", sums);

  const TokenRowTable no_text({0}), one_image({kTokens});
  const QkRopeShape shape = {
      .text = no_text.view(), .image = one_image.view(), .of_image = true, .heads = kHeads, .head_size = kHeadSize};
  const Floats qkv = Normals(4, 3 * kTokens * kWidth);
  const Floats angles = Normals(5, kTokens * kHeadSize / 2);  // any numbers do for bits
  Floats rotated(qkv.size()), dqkv(qkv.size());
  const std::int64_t part = kTokens * kWidth;
  QkRopeForward(shape, qkv.data(), table.data(), table.data(), angles.data(), angles.data(), rotated.data(),
                rotated.data() + part, rotated.data() + 2 * part);
  Print("QkRopeForward", rotated);
  QkRopeBackward(shape, qkv.data(), table.data(), table.data(), angles.data(), angles.data(), rotated.data(),
                 rotated.data() + part, rotated.data() + 2 * part, dqkv.data(), sums.data(), sums.data() + kHeadSize);
  Print("QkRopeBackward", dqkv);
  Print("QkRopeBackward/sums", sums);

  // 630 rows: several calls of oneDNN, split differently over 1 and 3 threads.
  constexpr std::int64_t kRows = 3 * kBatch * kTokens, kOut = 400;
  const Floats many = Normals(6, kRows * kWidth), weight = Normals(7, kOut * kWidth), dout = Normals(8, kRows * kOut);
  Floats out(dout.size()), dmany(many.size()), dweight(weight.size()), dbias(kOut);
  LinearForward(kRows, kWidth, kOut, many.data(), kWidth, {.fp32 = weight.data()}, weight.data(), out.data(), kOut);
  Print("LinearForward", out);
  LinearBackwardInput(kRows, kWidth, kOut, dout.data(), kOut, {.fp32 = weight.data()}, dmany.data(), kWidth, false);
  Print("LinearBackwardInput", dmany);
  LinearBackwardWeight(kRows, kWidth, kOut, many.data(), kWidth, dout.data(), kOut, dweight.data(), dbias.data());
  Print("LinearBackwardWeight", dweight);
  Print("LinearBackwardWeight/bias", dbias);
  LinearBackwardWeightInSlices(kRows, kWidth, kOut, 50, many.data(), kWidth, dout.data(), kOut, dweight.data());
  Print("LinearBackwardWeightInSlices", dweight);
  AddTransposed(kOut, kWidth, weight.data(), dweight.data(), kOut);
  Print("AddTransposed", dweight);
  // Several panels: 30000 features of 96.
  constexpr std::int64_t kWide = 30000, kFew = 40;
  const Floats wide = Normals(11, kWide * kWidth), dwide = Normals(12, kFew * kWide);
  std::vector<Bfloat16> stored(wide.size());
  RoundToBfloat16(kWide * kWidth, wide.data(), stored.data());
  Floats out_wide(dwide.size());
  LinearForward(kFew, kWidth, kWide, many.data(), kWidth, {.bf16 = stored.data()}, wide.data(), out_wide.data(), kWide);
  Print("LinearForward/bf16", out_wide);
  LinearBackwardInput(kFew, kWidth, kWide, dwide.data(), kWide, {.bf16 = stored.data()}, dmany.data(), kWidth, false);
  Print("LinearBackwardInput/bf16", dmany);

  const TokenRowTable text_rows({7, 0, 14}), image_rows({63, 100, 26});
  const AttentionShape attention = {
      .text = text_rows.view(), .image = image_rows.view(), .heads = kHeads, .head_size = kHeadSize};
  const Floats k = Normals(9, kSize), v = Normals(10, kSize);
  Floats text(kBatch * 7 * kWidth), image(kBatch * 63 * kWidth), lse(kBatch * kHeads * kTokens), dk(kSize), dv(kSize);
  AttentionForward(attention, x.data(), k.data(), v.data(), nullptr, text.data(), image.data(), lse.data());
  Print("AttentionForward/text", text);
  Print("AttentionForward/image", image);
  AttentionBackward(attention, x.data(), k.data(), v.data(), nullptr, text.data(), image.data(), lse.data(), dy.data(),
                    dy.data(), dx.data(), dk.data(), dv.data());
  Print("AttentionBackward/q", dx);
  Print("AttentionBackward/k", dk);
  Print("AttentionBackward/v", dv);

  // 3 rows of 70 pixels.
  const Floats kernels = Normals(11, 9 * kWidth * kWidth);
  const Convolution convolution({kWidth, kWidth, 3, 1, 1}, kernels, table);
  convolution.Apply(
      {.rows = kBatch, .columns = kTokens, .count = kBatch, .y_row = kTokens * kWidth, .y_column = kWidth}, x.data(),
      y.data());
  Print("Convolution", y);
  NormPixels(kBatch * kTokens, kWidth, x.data(), table.data(), true, y.data());
  Print("NormPixels", y);

  GeluBackward(kSize, x.data(), dy.data(), dx.data());
  Print("GeluBackward", dx);
  GuidanceBackward(1, kTokens * kWidth, kWidth, 4.0f, x.data(), dy.data(), dx.data());
  Print("GuidanceBackward", dx);
  AdamWUpdate({}, 1, kSize, 1.0f, dy.data(), y.data(), dx.data(), Floats(x.size()).data());
  Print("AdamWUpdate", y);
  const std::uint64_t keys[] = {1, 2};
  Floats noise(400000);
  NormalNoise(2, 200000, keys, noise.data());
  Print("NormalNoise", noise);
  Print("SquaredNorm", {static_cast<float>(SquaredNorm(400000, noise.data()) - 400000)});
}

std::string OutputOfWorker(int threads) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = "'" + program + "' --gtest_also_run_disabled_tests --gtest_filter='ThreadsWorker.*' " +
                              std::to_string(threads) + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string lines;
  std::array<char, 256> line;
  while (pipe != nullptr && std::fgets(line.data(), line.size(), pipe) != nullptr) {
    const std::string text = line.data();
    if (text.starts_with("bits ") || text.starts_with("threads ")) lines += text;
  }
  if (pipe != nullptr) pclose(pipe);
  return lines;
}

TEST(Threads, DoNotChangeABit) {
  const std::string one = OutputOfWorker(1);
  const std::string three = OutputOfWorker(3);
  ASSERT_TRUE(one.starts_with("threads 1\n")) << one;
  ASSERT_TRUE(three.starts_with("threads 3\n")) << three;
  EXPECT_EQ(one.substr(one.find('\n')), three.substr(three.find('\n')));
  EXPECT_NE(one.find("bits SquaredNorm"), std::string::npos) << "the worker did not finish: " << one;
}

// oneDNN refuses the strides of B in each of the calls that the threads share.
TEST(Threads, AnExceptionOfOneIsTheCallers) {
  const Floats x = Normals(1, 512 * 64);
  Floats y(x.size());
  const GemmShape shape{.m = 512, .n = 64, .k = 64, .lda = 64, .ldb = -64, .ldc = 64};
  EXPECT_THROW(Gemm(shape, x.data(), x.data(), y.data()), std::exception);
  Gemm({.m = 512, .n = 64, .k = 64, .lda = 64, .ldb = 64, .ldc = 64}, x.data(), x.data(), y.data());
  EXPECT_NE(y.back(), 0.0f) << "what follows runs";
}

}  // namespace
}  // namespace spotlight
