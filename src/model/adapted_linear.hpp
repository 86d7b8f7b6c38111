// A linear layer y = x W^T + b, with a LoRA adapter on any slice of its outputs:
//   y[:, first:first+out] += (alpha / r) (x A^T) B^T        (Hu et al., arXiv 2106.09685)
// Layers that read the same input (q, k, v) are one layer here, with one slice each.
#pragma once

#include <vector>

#include "base/tensor.hpp"
#include "kernels/buffer.hpp"

namespace spotlight {

struct AdapterSlice {
  Index first = 0, out = 0;  // output features [first, first + out)
  Index a = 0, b = 0;        // offsets of A [r, in] and B [out, r] in the adapter parameters
};

struct AdaptedLinear {
  Index in = 0, out = 0;
  Index weight = 0, bias = 0;  // offsets of W [out, in] and b [out] in the base parameters
  std::vector<AdapterSlice> adapters;
};

// The parameter memory that a pass works on. Gradients are accumulated; a null gradient is not computed.
// Without `adapter` the adapters are left out: the base model.
struct ParameterMemory {
  const float* base = nullptr;
  const float* adapter = nullptr;
  float* base_gradient = nullptr;
  float* adapter_gradient = nullptr;
  Index lora_rank = 0;
  float lora_scale = 0;  // alpha / r
};

class AdaptedLinearOps {
 public:
  // x [rows, in] -> y [rows, out].
  void Forward(const AdaptedLinear& layer, const ParameterMemory& memory, Index rows, const float* x, float* y);
  // dy [rows, out] -> dx [rows, in] (overwritten; null: not wanted) and the parameter gradients.
  void Backward(const AdaptedLinear& layer, const ParameterMemory& memory, Index rows, const float* x, const float* dy,
                float* dx);

 private:
  Buffer low_;       // scale * x A^T [rows, r]
  Buffer low_grad_;  // scale * dy B [rows, r]
};

}  // namespace spotlight
