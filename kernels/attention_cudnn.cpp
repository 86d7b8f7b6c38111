// Attention by cuDNN's flash attention, bf16 with fp32 sums (kernels/cuda/attention_cudnn.hpp).
//
// One call a sample: a sample's bits cannot depend on its batch then, and with 24 heads one sample fills the device.
// Queries are the last tokens of the sample: all of them, or the image's alone where the text's output is not wanted.
//
// cuDNN writes a sample's output as [queries, H D]. The image's alone goes straight to its rows; with the text's it
// goes by way of scratch memory, because text and image rows lie in different arrays (a copy costs about 3 % of the
// product). The log-sum-exp always goes that way: cuDNN wants it dense and 16-byte aligned, and the image's part of a
// head is neither. The backward keeps [H, queries, keys] of bf16 in scratch memory on devices where cuDNN 9 is
// deterministic in no other way (Hopper: 0.9 GB for 4352 tokens of 24 heads).
//
// Copies leave the direction to the driver: in tests the caller's arrays are the host's pinned memory.
//
// A plan is made for each (heads, queries, keys, head size) when it is first seen and kept by the thread.
#include "kernels/cuda/attention_cudnn.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "kernels/cuda/cudnn_graph.hpp"
#include "kernels/cuda/library.hpp"

namespace spotlight::cuda {
namespace {

struct ProblemHash {
  std::size_t operator()(const AttentionProblem& p) const {
    std::uint64_t hash = 0;
    for (const std::int64_t value : {p.heads, p.queries, p.keys, p.head_size}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio
      hash ^= hash >> 32;
    }
    return hash;
  }
};

using Describe = CudnnGraph (*)(const AttentionProblem&, const DescribedDevice*);
using Plans = std::unordered_map<AttentionProblem, std::optional<CudnnGraph>, ProblemHash>;

// The plan for a problem, or null if cuDNN has none.
const CudnnGraph* FindPlan(Plans& plans, Describe describe, const AttentionProblem& problem) {
  const auto [place, fresh] = plans.try_emplace(problem);
  if (fresh) {
    CudnnGraph graph = describe(problem, nullptr);
    if (const std::string why_not = graph.Plan(CudnnHandle()); why_not.empty()) {
      place->second = std::move(graph);
    } else {
      LogWarning(fmt::format(
          "attention of {} heads, {} queries, {} keys, head size {}: cuDNN has no plan, our own kernel runs ({})",
          problem.heads, problem.queries, problem.keys, problem.head_size, why_not));
    }
  }
  return place->second.has_value() ? &*place->second : nullptr;
}

// One sample's part of the call.
struct Sample {
  AttentionProblem problem;
  std::int64_t text, image;              // tokens
  std::int64_t text_first, image_first;  // rows in the two streams
  const CudnnGraph* plan;

  bool with_text() const { return problem.queries > image; }
  std::int64_t row_size() const { return problem.heads * problem.head_size; }
  // In attention layout: of the sample's first token, and of the first query from there.
  std::int64_t first() const { return (text_first + image_first) * row_size(); }
  std::int64_t first_query() const { return (problem.keys - problem.queries) * problem.head_size; }
  std::int64_t first_lse() const { return (text_first + image_first) * problem.heads + problem.keys - problem.queries; }
  std::size_t row_bytes(std::int64_t rows) const {
    return static_cast<std::size_t>(rows * row_size()) * sizeof(Bfloat16);
  }
  std::size_t lse_bytes() const { return static_cast<std::size_t>(problem.heads * problem.queries) * sizeof(float); }
};

// The samples with their plans; nothing if cuDNN has no plan for one of them.
std::optional<std::vector<Sample>> PlanSamples(Plans& plans, Describe describe, const AttentionShape& shape,
                                               bool with_text) {
  std::vector<Sample> samples;
  for (std::int64_t b = 0; b < shape.text.batch; ++b) {
    const std::int64_t text = shape.text.tokens(b), image = shape.image.tokens(b);
    const std::int64_t queries = with_text ? text + image : image;
    if (queries == 0) continue;
    const AttentionProblem problem{
        .heads = shape.heads, .queries = queries, .keys = text + image, .head_size = shape.head_size};
    const CudnnGraph* plan = FindPlan(plans, describe, problem);
    if (plan == nullptr) return std::nullopt;
    samples.push_back({problem, text, image, shape.text.first[b], shape.image.first[b], plan});
  }
  return samples;
}

void Copy(void* to, const void* from, std::size_t bytes) {
  SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, CurrentStream()));
}

// Rows of both streams, one after the other in scratch memory.
void JoinStreams(const Sample& s, ConstActivations text, ConstActivations image, std::byte* rows) {
  Copy(rows, (text + s.text_first * s.row_size()).data, s.row_bytes(s.text));
  Copy(rows + s.row_bytes(s.text), (image + s.image_first * s.row_size()).data, s.row_bytes(s.image));
}

void SplitStreams(const Sample& s, const std::byte* rows, Activations text, Activations image) {
  Copy((text + s.text_first * s.row_size()).data, rows, s.row_bytes(s.text));
  Copy((image + s.image_first * s.row_size()).data, rows + s.row_bytes(s.text), s.row_bytes(s.image));
}

// Numbers of the queries between the caller's log-sum-exp, N a head, and a dense one.
void CopyLse(const Sample& s, float* to, std::int64_t to_row, const float* from, std::int64_t from_row) {
  const std::size_t width = static_cast<std::size_t>(s.problem.queries) * sizeof(float);
  SPOTLIGHT_CUDA_CALL(cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_row) * sizeof(float), from,
                                        static_cast<std::size_t>(from_row) * sizeof(float), width,
                                        static_cast<std::size_t>(s.problem.heads), cudaMemcpyDefault, CurrentStream()));
}

}  // namespace

bool AttentionForwardByCudnn(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                             const std::uint8_t* text_mask, Activations out_text, Activations out_image, float* lse) {
  if (q.type != ElementType::kBf16 || text_mask != nullptr) return false;
  thread_local Plans plans;
  const auto samples = PlanSamples(plans, CudnnGraph::AttentionForward, shape, static_cast<bool>(out_text));
  if (!samples.has_value()) return false;
  for (const Sample& s : *samples) {
    const auto [workspace, rows, dense] =
        ScratchPieces<3>({s.plan->workspace(), s.with_text() ? s.row_bytes(s.problem.queries) : 0, s.lse_bytes()});
    s.plan->Run(CudnnHandle(),
                {{CudnnGraph::kQ, (q + s.first() + s.first_query()).data},
                 {CudnnGraph::kK, (k + s.first()).data},
                 {CudnnGraph::kV, (v + s.first()).data},
                 {CudnnGraph::kOut, s.with_text() ? rows : (out_image + s.image_first * s.row_size()).data},
                 {CudnnGraph::kLse, dense}},
                workspace);
    if (s.with_text()) SplitStreams(s, rows, out_text, out_image);
    CopyLse(s, lse + s.first_lse(), s.problem.keys, reinterpret_cast<const float*>(dense), s.problem.queries);
  }
  return true;
}

bool AttentionBackwardByCudnn(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                              const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image,
                              const float* lse, ConstActivations dout_text, ConstActivations dout_image, Activations dq,
                              Activations dk, Activations dv) {
  if (q.type != ElementType::kBf16 || text_mask != nullptr) return false;
  thread_local Plans plans;
  const auto samples = PlanSamples(plans, CudnnGraph::AttentionBackward, shape, static_cast<bool>(dout_text));
  if (!samples.has_value()) return false;
  for (const Sample& s : *samples) {
    const std::size_t row_bytes = s.with_text() ? s.row_bytes(s.problem.queries) : 0;
    const auto [workspace, out_rows, dout_rows, dense] =
        ScratchPieces<4>({s.plan->workspace(), row_bytes, row_bytes, s.lse_bytes()});
    const void* out = (out_image + s.image_first * s.row_size()).data;
    const void* dout = (dout_image + s.image_first * s.row_size()).data;
    if (s.with_text()) {
      JoinStreams(s, out_text, out_image, out_rows);
      JoinStreams(s, dout_text, dout_image, dout_rows);
      out = out_rows;
      dout = dout_rows;
    } else if (s.text > 0) {  // the text's queries had no part in the result
      const std::size_t token = static_cast<std::size_t>(s.problem.head_size) * sizeof(Bfloat16);
      SPOTLIGHT_CUDA_CALL(cudaMemset2DAsync((dq + s.first()).data, token * static_cast<std::size_t>(s.problem.keys), 0,
                                            token * static_cast<std::size_t>(s.text),
                                            static_cast<std::size_t>(s.problem.heads), CurrentStream()));
    }
    CopyLse(s, reinterpret_cast<float*>(dense), s.problem.queries, lse + s.first_lse(), s.problem.keys);
    s.plan->Run(CudnnHandle(),
                {{CudnnGraph::kQ, (q + s.first() + s.first_query()).data},
                 {CudnnGraph::kK, (k + s.first()).data},
                 {CudnnGraph::kV, (v + s.first()).data},
                 {CudnnGraph::kOut, out},
                 {CudnnGraph::kDout, dout},
                 {CudnnGraph::kLse, dense},
                 {CudnnGraph::kDq, (dq + s.first() + s.first_query()).data},
                 {CudnnGraph::kDk, (dk + s.first()).data},
                 {CudnnGraph::kDv, (dv + s.first()).data}},
                workspace);
  }
  return true;
}

}  // namespace spotlight::cuda
