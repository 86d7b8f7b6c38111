#include "kernels/cuda/cudnn_graph.hpp"

#include <cudnn_frontend.h>

#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace spotlight::cuda {
namespace {

namespace frontend = cudnn_frontend;
using frontend::graph::Graph;
using TensorDescription = frontend::graph::Tensor_attributes;
using TensorHandle = std::shared_ptr<TensorDescription>;
using Lengths = std::vector<std::int64_t>;

constexpr auto kFp32 = frontend::DataType_t::FLOAT;
constexpr auto kBf16 = frontend::DataType_t::BFLOAT16;

// cuDNN orders dimensions as batch, heads or channels, rows, columns; strides are in elements.
TensorHandle Input(Graph& graph, CudnnGraph::Tensor tensor, frontend::DataType_t type, const Lengths& sizes,
                   const Lengths& strides) {
  return graph.tensor(TensorDescription().set_uid(tensor).set_data_type(type).set_dim(sizes).set_stride(strides));
}

// Bytes that every pixel of an fp32 image is aligned to: cuDNN takes 16 for granted unless it is told otherwise.
std::int64_t PixelAlignment(std::int64_t channels, std::int64_t row, std::int64_t column) {
  return (channels | row | column) % 4 == 0 ? 16 : 4;
}

void Output(const TensorHandle& handle, CudnnGraph::Tensor tensor, frontend::DataType_t type, const Lengths& sizes,
            const Lengths& strides) {
  handle->set_output(true).set_uid(tensor).set_data_type(type).set_dim(sizes).set_stride(strides);
}

struct AttentionLayout {
  Lengths query_sizes, key_sizes, head_first;  // head_first: strides of q, k, v
  Lengths token_first;                         // strides of out
  Lengths lse_sizes, lse_strides;
  float scale;

  explicit AttentionLayout(const AttentionProblem& p)
      : query_sizes{1, p.heads, p.queries, p.head_size},
        key_sizes{1, p.heads, p.keys, p.head_size},
        head_first{p.heads * p.keys * p.head_size, p.keys * p.head_size, p.head_size, 1},
        token_first{p.queries * p.heads * p.head_size, p.head_size, p.heads * p.head_size, 1},
        lse_sizes{1, p.heads, p.queries, 1},
        lse_strides{p.heads * p.queries, p.queries, 1, 1},
        scale(1.0f / std::sqrt(static_cast<float>(p.head_size))) {}
};

}  // namespace

struct CudnnGraph::Graph {
  frontend::graph::Graph graph;
  std::vector<frontend::NumericalNote_t> refused{frontend::NumericalNote_t::NONDETERMINISTIC};  // notes of engines

  // Nodes look at the device when they are added, so it comes first.
  explicit Graph(const DescribedDevice* device) {
    graph.set_intermediate_data_type(kFp32).set_compute_data_type(kFp32);
    if (device == nullptr) return;
    const auto properties = std::make_shared<frontend::DeviceProperties>();
    auto status = properties->deserialize({device->properties.begin(), device->properties.end()});
    SPOTLIGHT_REQUIRE(status.is_good(), "cuDNN: " + status.get_message());
    graph.set_device_properties(properties).set_sm_version(device->capability);
  }

  // Up to the list of engines that the device has. Handle: of the device; none if it is only described.
  template <typename... Handle>
  frontend::error_t ListEngines(Handle... handle) {
    if (auto status = graph.validate(); status.is_bad()) return status;
    if (auto status = graph.build_operation_graph(handle...); status.is_bad()) return status;
    if (auto status = graph.create_execution_plans({frontend::HeurMode_t::A, frontend::HeurMode_t::FALLBACK});
        status.is_bad()) {
      return status;
    }
    graph.deselect_numeric_notes(refused);
    return graph.check_support();
  }
};

CudnnGraph::CudnnGraph(std::unique_ptr<Graph> graph) : graph_(std::move(graph)) {}
CudnnGraph::CudnnGraph(CudnnGraph&&) noexcept = default;
CudnnGraph& CudnnGraph::operator=(CudnnGraph&&) noexcept = default;
CudnnGraph::~CudnnGraph() = default;

CudnnGraph CudnnGraph::AttentionForward(const AttentionProblem& problem, const DescribedDevice* device) {
  auto made = std::make_unique<Graph>(device);
  frontend::graph::Graph& graph = made->graph;
  const AttentionLayout layout(problem);
  const auto q = Input(graph, kQ, kBf16, layout.query_sizes, layout.head_first);
  const auto k = Input(graph, kK, kBf16, layout.key_sizes, layout.head_first);
  const auto v = Input(graph, kV, kBf16, layout.key_sizes, layout.head_first);
  const auto [out, lse] =
      graph.sdpa(q, k, v, frontend::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(layout.scale));
  Output(out, kOut, kBf16, layout.query_sizes, layout.token_first);
  Output(lse, kLse, kFp32, layout.lse_sizes, layout.lse_strides);
  return CudnnGraph(std::move(made));
}

CudnnGraph CudnnGraph::AttentionBackward(const AttentionProblem& problem, const DescribedDevice* device) {
  auto made = std::make_unique<Graph>(device);
  frontend::graph::Graph& graph = made->graph;
  const AttentionLayout layout(problem);
  const auto q = Input(graph, kQ, kBf16, layout.query_sizes, layout.head_first);
  const auto k = Input(graph, kK, kBf16, layout.key_sizes, layout.head_first);
  const auto v = Input(graph, kV, kBf16, layout.key_sizes, layout.head_first);
  const auto out = Input(graph, kOut, kBf16, layout.query_sizes, layout.token_first);
  const auto dout = Input(graph, kDout, kBf16, layout.query_sizes, layout.token_first);
  const auto lse = Input(graph, kLse, kFp32, layout.lse_sizes, layout.lse_strides);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      q, k, v, out, dout, lse,
      frontend::graph::SDPA_backward_attributes().set_deterministic_algorithm(true).set_attn_scale(layout.scale));
  Output(dq, kDq, kBf16, layout.query_sizes, layout.head_first);
  Output(dk, kDk, kBf16, layout.key_sizes, layout.head_first);
  Output(dv, kDv, kBf16, layout.key_sizes, layout.head_first);
  return CudnnGraph(std::move(made));
}

CudnnGraph CudnnGraph::Convolution(const ConvolutionProblem& p, const DescribedDevice* device) {
  auto made = std::make_unique<Graph>(device);
  // TF32 is a note of its own (tensor cores): these stand for fp16 or bfloat16 in place of fp32.
  made->refused.push_back(frontend::NumericalNote_t::DOWN_CONVERT_INPUTS);
  made->refused.push_back(frontend::NumericalNote_t::REDUCED_PRECISION_REDUCTION);
  frontend::graph::Graph& graph = made->graph;
  const std::int64_t row = p.columns * p.in, y_rows = p.rows + p.pad_top + p.pad_bottom - p.taps + 1;
  const std::int64_t y_columns = p.columns + p.pad_left + p.pad_right - p.taps + 1;
  const auto x = Input(graph, kX, kFp32, {1, p.in, p.rows, p.columns}, {p.rows * row, 1, row, p.in});
  x->set_alignment(PixelAlignment(p.in, row, p.in));
  const auto weight =
      Input(graph, kWeight, kFp32, {p.out, p.in, p.taps, p.taps}, {p.taps * p.taps * p.in, 1, p.taps * p.in, p.in});
  const auto bias = Input(graph, kBias, kFp32, {1, p.out, 1, 1}, {p.out, 1, p.out, p.out});
  const auto product = graph.conv_fprop(x, weight,
                                        frontend::graph::Conv_fprop_attributes()
                                            .set_pre_padding({p.pad_top, p.pad_left})
                                            .set_post_padding({p.pad_bottom, p.pad_right})
                                            .set_stride({1, 1})
                                            .set_dilation({1, 1}));
  product->set_data_type(kFp32);
  const auto y =
      graph.pointwise(product, bias, frontend::graph::Pointwise_attributes().set_mode(frontend::PointwiseMode_t::ADD));
  Output(y, kY, kFp32, {1, p.out, y_rows, y_columns}, {y_rows * p.y_row, 1, p.y_row, p.y_column});
  y->set_alignment(PixelAlignment(p.out, p.y_row, p.y_column));
  return CudnnGraph(std::move(made));
}

std::string CudnnGraph::Plan(cudnnHandle_t handle) {
  std::int64_t bytes = 0;
  auto status = graph_->ListEngines(handle);
  if (status.is_good()) status = graph_->graph.build_plans();
  if (status.is_good()) status = graph_->graph.get_workspace_size(bytes);
  workspace_ = static_cast<std::size_t>(bytes);
  return status.is_good() ? "" : status.get_message();
}

void CudnnGraph::Run(cudnnHandle_t handle, std::initializer_list<Operand> operands, void* workspace) const {
  std::unordered_map<std::int64_t, void*> memory;
  for (const Operand& operand : operands) memory[operand.tensor] = const_cast<void*>(operand.memory);
  auto status = graph_->graph.execute(handle, memory, workspace);
  SPOTLIGHT_REQUIRE(status.is_good(), "cuDNN: " + status.get_message());
}

std::string CudnnGraph::CheckSupport(bool build) {
  auto status = graph_->ListEngines();
  if (status.is_good() && build) status = graph_->graph.build_plans();
  return status.is_good() ? "" : status.get_message();
}

}  // namespace spotlight::cuda
