// Attention and convolution as graphs of cuDNN operations, each for one shape. The only door to cuDNN's C++ front end,
// which is slow to compile.
//
// A graph is described first, then either planned for the device that is there and run, or checked against a device
// that is only described (so that machines without one can tell whether cuDNN has an engine for a shape). Engines that
// cuDNN calls nondeterministic are left out.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

namespace spotlight::cuda {

// Attention of one sample: softmax(q k^T / sqrt(D)) v for H heads, Q queries and N keys, without masks.
struct AttentionProblem {
  std::int64_t heads = 0;      // H
  std::int64_t queries = 0;    // Q: the last ones of the sample's N tokens
  std::int64_t keys = 0;       // N
  std::int64_t head_size = 0;  // D

  bool operator==(const AttentionProblem&) const = default;
};

// Convolution of one image [rows, columns, in], fp32 in NHWC order, with `taps` x `taps` numbers a channel pair. The
// result has rows + pads - taps + 1 rows, `y_row` floats apart, and columns likewise, `y_column` floats apart.
struct ConvolutionProblem {
  std::int64_t rows = 0, columns = 0;
  std::int64_t in = 0, out = 0;
  std::int64_t taps = 0;
  std::int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;
  std::int64_t y_row = 0, y_column = 0;

  bool operator==(const ConvolutionProblem&) const = default;
};

// A device that need not be there: its properties as cuDNN's DeviceProperties writes them (JSON), and its compute
// capability (90 for 9.0).
struct DescribedDevice {
  std::string properties;
  int capability = 0;
};

class CudnnGraph {
 public:
  // Operands by the number that they have in the graph.
  enum Tensor : std::int64_t { kQ = 1, kK, kV, kOut, kLse, kDout, kDq, kDk, kDv, kX, kWeight, kBias, kY };
  struct Operand {
    Tensor tensor;
    const void* memory;  // on the device, 16-byte aligned; x and y 4-byte where their pixels are not multiples of 16
  };

  // device: null for the one that is there.
  // q: the first query; k, v: the first token; all bf16 with D elements between tokens and N D between heads. out
  // [Q, H, D] bf16. lse [H, Q] fp32: natural logarithm of the sum of exp(scaled score).
  static CudnnGraph AttentionForward(const AttentionProblem& problem, const DescribedDevice* device = nullptr);
  // out, dout [Q, H, D] and lse [H, Q] as above; dq as q; dk, dv as k. Without atomics: bits do not vary.
  static CudnnGraph AttentionBackward(const AttentionProblem& problem, const DescribedDevice* device = nullptr);
  // y = bias + convolution, all fp32; weight [out, taps, taps, in]. Products may be rounded to TF32, sums are fp32.
  static CudnnGraph Convolution(const ConvolutionProblem& problem, const DescribedDevice* device = nullptr);

  CudnnGraph(CudnnGraph&&) noexcept;
  CudnnGraph& operator=(CudnnGraph&&) noexcept;
  ~CudnnGraph();

  // Plans the graph for the handle's device: milliseconds for a convolution, up to a second for attention, which
  // compiles a kernel. Empty, or why cuDNN has no engine for it there.
  std::string Plan(cudnnHandle_t handle);
  // Bytes that Run needs at `workspace`, 256-byte aligned. After Plan.
  std::size_t workspace() const { return workspace_; }
  // On the handle's stream. operands: all of the graph. Internal error if cuDNN refuses.
  void Run(cudnnHandle_t handle, std::initializer_list<Operand> operands, void* workspace) const;

  // Whether the described device has an engine: empty, or why not. `build` makes the whole plan, which works without a
  // device where no kernel has to be compiled.
  std::string CheckSupport(bool build);

 private:
  struct Graph;
  explicit CudnnGraph(std::unique_ptr<Graph> graph);

  std::unique_ptr<Graph> graph_;
  std::size_t workspace_ = 0;
};

}  // namespace spotlight::cuda
