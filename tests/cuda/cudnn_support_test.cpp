// Asks cuDNN, without a device, whether an A100, an H100 and a B200 have an engine for each shape that Qwen-Image at
// 512 and 1280 pixels needs. The graphs are those that the CUDA back end runs; batches are not among the shapes because
// every sample is a call of its own. Convolution plans are built whole; attention compiles its kernel on the device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <ostream>
#include <string>

#include "kernels/cuda/cudnn_graph.hpp"

namespace spotlight::cuda {
namespace {

struct Processor {
  int capability;
  int processors;
  int shared_bytes;  // most of a block
  const char* name;

  DescribedDevice Describe() const {
    return {
        fmt::format(
            R"({{"deviceName":"{}","deviceVer":{},"multiProcessorCount":{},"maxSharedMemoryPerBlockOptin":{},)"
            R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,"warpSize":32,)"
            R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
            R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)"
            R"("supportCoopLaunch":1,"totalGlobalMem":85899345920,"smClockRateKHz":1980000,"memClockRateKHz":2619000,)"
            R"("l2CacheSize":52428800,"cudaDeviceId":0,"driverVer":13000}})",
            name, capability * 10, processors, shared_bytes),
        capability};
  }
};

void PrintTo(const Processor& device, std::ostream* out) { *out << device.name; }

class CudnnSupport : public testing::TestWithParam<Processor> {
 protected:
  template <typename Problem>
  std::string WhyNot(CudnnGraph (*describe)(const Problem&, const DescribedDevice*), const Problem& problem,
                     bool build = false) const {
    const DescribedDevice device = GetParam().Describe();
    return describe(problem, &device).CheckSupport(build);
  }
};

constexpr std::int64_t kHeadSize = 128;
constexpr std::array<std::int64_t, 11> kTextTokens{1, 2, 17, 37, 64, 100, 255, 256, 511, 777, 1024};

// Calls body(problem) for each number of heads that sequence parallelism leaves a rank, each image and text, with the
// text's queries and without.
template <typename Body>
void ForEachAttention(const Body& body) {
  for (const std::int64_t heads : {24, 12, 6, 3}) {
    for (const std::int64_t image : {1024, 6400}) {
      for (const std::int64_t text : kTextTokens) {
        for (const std::int64_t queries : {image, image + text}) {
          SCOPED_TRACE(fmt::format("{} heads, {} queries, {} keys", heads, queries, image + text));
          body(AttentionProblem{.heads = heads, .queries = queries, .keys = image + text, .head_size = kHeadSize});
        }
      }
    }
  }
}

TEST_P(CudnnSupport, AttentionForward) {
  ForEachAttention(
      [&](const AttentionProblem& problem) { EXPECT_EQ(WhyNot(CudnnGraph::AttentionForward, problem), ""); });
}

TEST_P(CudnnSupport, AttentionBackward) {
  ForEachAttention(
      [&](const AttentionProblem& problem) { EXPECT_EQ(WhyNot(CudnnGraph::AttentionBackward, problem), ""); });
}

TEST_P(CudnnSupport, RefusesAHeadSizeThatNoEngineHas) {
  const AttentionProblem problem{.heads = 3, .queries = 64, .keys = 64, .head_size = 100};
  EXPECT_NE(WhyNot(CudnnGraph::AttentionForward, problem), "");
  EXPECT_NE(WhyNot(CudnnGraph::AttentionBackward, problem), "");
}

struct Layer {
  std::int64_t in, out, taps;
  std::int64_t scale;  // columns of its input for each column of latents
};

// The decoder's layers: base width 96, levels of 4, 4, 2 and 1 times that, 16 channels of latents.
constexpr std::array kLayers{Layer{16, 16, 1, 1},   Layer{16, 384, 3, 1},  Layer{384, 384, 3, 1}, Layer{384, 384, 1, 1},
                             Layer{192, 384, 3, 2}, Layer{192, 384, 1, 2}, Layer{384, 384, 3, 2}, Layer{192, 192, 3, 4},
                             Layer{96, 96, 3, 8},   Layer{96, 3, 3, 8}};

TEST_P(CudnnSupport, Convolutions) {
  for (const std::int64_t side : {64, 160}) {
    for (const Layer& layer : kLayers) {
      const std::int64_t columns = side * layer.scale, pad = layer.taps / 2;
      SCOPED_TRACE(fmt::format("{} -> {}, {} taps, {} columns", layer.in, layer.out, layer.taps, columns));
      EXPECT_EQ(WhyNot<ConvolutionProblem>(CudnnGraph::Convolution,
                                           {.rows = columns,
                                            .columns = columns,
                                            .in = layer.in,
                                            .out = layer.out,
                                            .taps = layer.taps,
                                            .pad_top = pad,
                                            .pad_bottom = pad,
                                            .pad_left = pad,
                                            .pad_right = pad,
                                            .y_row = columns * layer.out,
                                            .y_column = layer.out},
                                           true),
                "");
    }
  }
}

// Each writes every other row and column of the magnified image.
TEST_P(CudnnSupport, MagnifyingConvolutions) {
  for (const std::int64_t side : {64, 160}) {
    for (const Layer& layer : {Layer{384, 192, 2, 1}, Layer{384, 192, 2, 2}, Layer{192, 96, 2, 4}}) {
      for (const std::int64_t parity : {0, 1}) {
        const std::int64_t columns = side * layer.scale;
        SCOPED_TRACE(fmt::format("{} -> {}, {} columns, parity {}", layer.in, layer.out, columns, parity));
        EXPECT_EQ(WhyNot<ConvolutionProblem>(CudnnGraph::Convolution,
                                             {.rows = columns,
                                              .columns = columns,
                                              .in = layer.in,
                                              .out = layer.out,
                                              .taps = layer.taps,
                                              .pad_top = 1 - parity,
                                              .pad_bottom = parity,
                                              .pad_left = 1 - parity,
                                              .pad_right = parity,
                                              .y_row = 4 * columns * layer.out,
                                              .y_column = 2 * layer.out},
                                             true),
                  "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, CudnnSupport,
                         testing::Values(Processor{80, 108, 166912, "A100"}, Processor{90, 132, 232448, "H100"},
                                         Processor{100, 148, 232448, "B200"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace spotlight::cuda
