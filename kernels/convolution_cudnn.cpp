// Convolution by cuDNN (kernels/convolution.hpp): products in TF32 where the device has tensor cores for it (10 bits of
// fraction), sums in fp32. The order of the sums is cuDNN's: the same bits for the same band, not for any band.
//
// A plan is made for each shape and band size when it is first seen, and kept by the thread. Rows beside the band that
// the image has are read, those that it has not are padding. Results go straight to where they belong, with the strides
// of y; only those that are added to y go by way of scratch memory.
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "kernels/cuda/cudnn_graph.hpp"
#include "kernels/cuda/library.hpp"
#include "kernels/cuda/matrix_rows.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

const CudnnGraph& FindPlan(const ConvolutionProblem& p) {
  auto key = std::tuple(p.rows, p.columns, p.in, p.out, p.taps, p.pad_top, p.pad_bottom, p.pad_left, p.pad_right,
                        p.y_row, p.y_column);
  thread_local std::map<decltype(key), CudnnGraph> plans;
  const auto place = plans.find(key);
  if (place != plans.end()) return place->second;
  CudnnGraph graph = CudnnGraph::Convolution(p);
  const std::string why_not = graph.Plan(CudnnHandle());
  SPOTLIGHT_REQUIRE(why_not.empty(), "cuDNN has no plan for a convolution: " + why_not);
  return plans.emplace(key, std::move(graph)).first->second;
}

}  // namespace

// [out, in, taps, taps] -> [out, taps, taps, in].
void PackConvolution(const ConvolutionShape& shape, std::span<const float> weight, std::span<const float> bias,
                     Buffer& packed_weight, Buffer& packed_bias) {
  const std::int64_t area = shape.taps * shape.taps;
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(weight.size()) == shape.out * shape.in * area,
                    "weights of another shape");
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(bias.size()) == shape.out, "a bias of another shape");
  std::vector<float> packed;
  packed.reserve(weight.size());
  for (std::int64_t o = 0; o < shape.out; ++o) {
    for (std::int64_t tap = 0; tap < area; ++tap) {
      for (std::int64_t k = 0; k < shape.in; ++k) {
        packed.push_back(weight[static_cast<std::size_t>((o * shape.in + k) * area + tap)]);
      }
    }
  }
  packed_weight.Resize(static_cast<std::int64_t>(packed.size()));
  packed_weight.CopyFromHost(packed);
  packed_bias.Resize(shape.out);
  packed_bias.CopyFromHost(bias);
}

void Convolve(const ConvolutionShape& shape, const Buffer& packed_weight, const Buffer& packed_bias,
              const ConvolutionBand& band, const float* x, float* y) {
  SPOTLIGHT_REQUIRE(band.first >= 0 && band.first + band.count <= band.rows, "a band beyond the image");
  if (band.count == 0 || band.columns == 0) return;
  // Rows of the image that the band is computed from: [begin, end), those that exist of [above, below).
  const std::int64_t above = band.first - shape.pad_row, below = above + band.count + shape.taps - 1;
  const std::int64_t begin = std::max<std::int64_t>(above, 0), end = std::min(below, band.rows);
  const std::int64_t dense_row = band.columns * shape.out;
  const ConvolutionProblem problem{.rows = end - begin,
                                   .columns = band.columns,
                                   .in = shape.in,
                                   .out = shape.out,
                                   .taps = shape.taps,
                                   .pad_top = begin - above,
                                   .pad_bottom = below - end,
                                   .pad_left = shape.pad_column,
                                   .pad_right = shape.taps - 1 - shape.pad_column,
                                   .y_row = band.add ? dense_row : band.y_row,
                                   .y_column = band.add ? shape.out : band.y_column};
  const CudnnGraph& plan = FindPlan(problem);
  const auto result_bytes = band.add ? static_cast<std::size_t>(band.count * dense_row) * sizeof(float) : 0;
  const auto [workspace, result] = ScratchPieces<2>({plan.workspace(), result_bytes});
  plan.Run(CudnnHandle(),
           {{CudnnGraph::kX, x + (begin - band.x_first) * band.columns * shape.in},
            {CudnnGraph::kWeight, packed_weight.data()},
            {CudnnGraph::kBias, packed_bias.data()},
            {CudnnGraph::kY, band.add ? static_cast<const void*>(result) : y}},
           workspace);
  if (!band.add) return;
  AddPixels(band.count, band.columns, shape.out, reinterpret_cast<const float*>(result), y, band.y_row, band.y_column);
}

}  // namespace spotlight::cuda
