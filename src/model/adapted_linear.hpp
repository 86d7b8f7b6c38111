// A linear layer y = x W^T + b, with a LoRA adapter on any slice of its outputs:
//   y[:, first:first+out] += (alpha / r) (x A^T) B^T        (Hu et al., arXiv 2106.09685)
// Layers that read the same input (q, k, v) are one layer here, with one slice each.
//
// In a sequence-parallel group each rank holds a share of the rows. Forward and input gradients are of rows, so they
// need nothing of the others. Parameter gradients are sums over all rows: each rank computes a slice of them (an
// adapter's: of its heads; the base's: of the outputs) from all rows, in the order of one rank alone, so the bits are
// the same; the other slices keep their values.
//
// x, y and their gradients are fp32 or bfloat16, each as it comes. What lies between the two low-rank products is fp32;
// rounding is that of kernels/linear.hpp.
#pragma once

#include <vector>

#include "base/tensor.hpp"
#include "kernels/buffer.hpp"
#include "model/parameters.hpp"
#include "model/token_shards.hpp"

namespace spotlight {

struct AdapterSlice {
  Index first = 0, out = 0;  // output features [first, first + out)
  Index rank = 0;            // r
  Index a = 0, b = 0;        // offsets of A [r, in] and B [out, r] in the part's adapter
};

struct AdaptedLinear {
  Index in = 0, out = 0;
  Index heads = 1;             // of the model: features are summed in slices of in / heads and out / heads
  Index weight = 0, bias = 0;  // offsets of W [out, in] in the part's matrices and of b [out] in its vectors
  std::vector<AdapterSlice> adapters;
};

class AdaptedLinearOps {
 public:
  // x [rows, in] -> y [rows, out].
  void Forward(const AdaptedLinear& layer, const PartMemory& memory, float lora_scale, Index rows, ConstActivations x,
               Activations y);
  // dy [rows, out] -> dx [rows, in] (overwritten; null: not wanted) and the parameter gradients. shards: of `stream`,
  // if its rows are shared out; null: this rank has all rows.
  void Backward(const AdaptedLinear& layer, const PartMemory& memory, float lora_scale, Index rows, ConstActivations x,
                ConstActivations dy, Activations dx, TokenShards* shards = nullptr, Stream stream = Stream::kImage);

 private:
  void BaseGradient(const AdaptedLinear& layer, const PartMemory& memory, Index rows, ConstActivations x,
                    ConstActivations dy, TokenShards* shards, Stream stream);
  void AdapterGradient(const AdaptedLinear& layer, const AdapterSlice& slice, float* gradient, Index rows,
                       ConstActivations x, ConstActivations slice_dy, TokenShards* shards, Stream stream);

  Buffer low_;                       // scale * x A^T [rows, r]
  Buffer low_grad_;                  // scale * dy B [rows, r]
  Buffer all_low_, all_low_grad_;    // of all rows
  ActivationBuffer all_x_, all_dy_;  // of all rows; an adapter's: own features
  Buffer a_gradient_;                // [own inputs, r], A's gradient transposed
};

}  // namespace spotlight
