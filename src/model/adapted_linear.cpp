#include "model/adapted_linear.hpp"

#include "kernels/linear.hpp"
#include "kernels/optimizer.hpp"

namespace spotlight {

void AdaptedLinearOps::Forward(const AdaptedLinear& layer, const ParameterMemory& memory, Index rows, const float* x,
                               float* y) {
  LinearForward(rows, layer.in, layer.out, x, layer.in, memory.base + layer.weight, memory.base + layer.bias, y,
                layer.out);
  if (memory.adapter == nullptr) return;
  const Index r = memory.lora_rank;
  for (const AdapterSlice& slice : layer.adapters) {
    low_.Resize(rows * r);
    LinearForward(rows, layer.in, r, x, layer.in, memory.adapter + slice.a, nullptr, low_.data(), r);  // [rows, r]
    Scale(rows * r, memory.lora_scale, low_.data());
    Gemm({.transpose_b = true,
          .m = rows,
          .n = slice.out,
          .k = r,
          .lda = r,
          .ldb = r,
          .ldc = layer.out,
          .accumulate = true},
         low_.data(), memory.adapter + slice.b, y + slice.first);
  }
}

void AdaptedLinearOps::Backward(const AdaptedLinear& layer, const ParameterMemory& memory, Index rows, const float* x,
                                const float* dy, float* dx) {
  if (memory.base_gradient != nullptr) {
    LinearBackwardWeight(rows, layer.in, layer.out, x, layer.in, dy, layer.out, memory.base_gradient + layer.weight,
                         memory.base_gradient + layer.bias);
  }
  if (dx != nullptr) {
    LinearBackwardInput(rows, layer.in, layer.out, dy, layer.out, memory.base + layer.weight, dx, layer.in, false);
  }
  if (memory.adapter == nullptr) return;
  const Index r = memory.lora_rank;
  for (const AdapterSlice& slice : layer.adapters) {
    const float* slice_dy = dy + slice.first;
    low_.Resize(rows * r);
    low_grad_.Resize(rows * r);
    LinearBackwardInput(rows, r, slice.out, slice_dy, layer.out, memory.adapter + slice.b, low_grad_.data(), r, false);
    Scale(rows * r, memory.lora_scale, low_grad_.data());
    if (memory.adapter_gradient != nullptr) {
      LinearForward(rows, layer.in, r, x, layer.in, memory.adapter + slice.a, nullptr, low_.data(), r);
      Scale(rows * r, memory.lora_scale, low_.data());
      LinearBackwardWeight(rows, r, slice.out, low_.data(), r, slice_dy, layer.out, memory.adapter_gradient + slice.b,
                           nullptr);
      LinearBackwardWeight(rows, layer.in, r, x, layer.in, low_grad_.data(), r, memory.adapter_gradient + slice.a,
                           nullptr);
    }
    if (dx != nullptr) {
      Gemm({.m = rows, .n = layer.in, .k = r, .lda = r, .ldb = layer.in, .ldc = layer.in, .accumulate = true},
           low_grad_.data(), memory.adapter + slice.a, dx);
    }
  }
}

}  // namespace spotlight
