#include "model/adapted_linear.hpp"

#include "kernels/linear.hpp"
#include "kernels/optimizer.hpp"

namespace spotlight {

void AdaptedLinearOps::Forward(const AdaptedLinear& layer, const PartMemory& memory, float lora_scale, Index rows,
                               ConstActivations x, Activations y) {
  LinearForward(rows, layer.in, layer.out, x, layer.in, memory.matrices + layer.weight, memory.vectors + layer.bias, y,
                layer.out);
  if (memory.adapter == nullptr) return;
  for (const AdapterSlice& slice : layer.adapters) {
    const Index r = slice.rank;
    low_.Resize(rows * r);
    LinearForward(rows, layer.in, r, x, layer.in, {.fp32 = memory.adapter + slice.a}, nullptr, low_.data(), r);
    Scale(rows * r, lora_scale, low_.data());
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

void AdaptedLinearOps::Backward(const AdaptedLinear& layer, const PartMemory& memory, float lora_scale, Index rows,
                                ConstActivations x, ConstActivations dy, Activations dx, TokenShards* shards,
                                Stream stream) {
  if (memory.trains_base()) BaseGradient(layer, memory, rows, x, dy, shards, stream);
  if (dx) {
    LinearBackwardInput(rows, layer.in, layer.out, dy, layer.out, memory.matrices + layer.weight, dx, layer.in, false);
  }
  if (memory.adapter == nullptr) return;
  for (const AdapterSlice& slice : layer.adapters) {
    const Index r = slice.rank;
    const ConstActivations slice_dy = dy + slice.first;
    low_grad_.Resize(rows * r);
    LinearBackwardInput(rows, r, slice.out, slice_dy, layer.out, {.fp32 = memory.adapter + slice.b}, low_grad_.data(),
                        r, false);
    Scale(rows * r, lora_scale, low_grad_.data());
    if (memory.adapter_gradient != nullptr) {
      low_.Resize(rows * r);
      LinearForward(rows, layer.in, r, x, layer.in, {.fp32 = memory.adapter + slice.a}, nullptr, low_.data(), r);
      Scale(rows * r, lora_scale, low_.data());
      AdapterGradient(layer, slice, memory.adapter_gradient, rows, x, slice_dy, shards, stream);
    }
    if (dx) {
      Gemm({.m = rows, .n = layer.in, .k = r, .lda = r, .ldb = layer.in, .ldc = layer.in, .accumulate = true},
           low_grad_.data(), memory.adapter + slice.a, dx);
    }
  }
}

void AdaptedLinearOps::BaseGradient(const AdaptedLinear& layer, const PartMemory& memory, Index rows,
                                    ConstActivations x, ConstActivations dy, TokenShards* shards, Stream stream) {
  WorkShare share;
  if (shards != nullptr && shards->ranks() > 1) {
    share = {shards->index(), shards->ranks()};
    rows = shards->all_rows(stream).rows();
    all_x_.Resize(x.type, rows * layer.in);
    all_dy_.Resize(dy.type, rows * layer.out);
    // All outputs of dy, because the order of oneDNN's sums depends on the row strides too.
    using Kind = TokenShards::Transfer::Kind;
    shards->Exchange({{Kind::kGather, stream, layer.in, 0, x, all_x_.data()},
                      {Kind::kGather, stream, layer.out, 0, dy, all_dy_.data()}});
    x = all_x_.data();
    dy = all_dy_.data();
  }
  LinearBackwardWeight(rows, layer.in, layer.out, x, layer.in, dy, layer.out, memory.matrices_gradient + layer.weight,
                       memory.vectors_gradient + layer.bias, share);
}

void AdaptedLinearOps::AdapterGradient(const AdaptedLinear& layer, const AdapterSlice& slice, float* gradient,
                                       Index rows, ConstActivations x, ConstActivations slice_dy, TokenShards* shards,
                                       Stream stream) {
  const Index r = slice.rank;
  const float *low = low_.data(), *low_grad = low_grad_.data();
  Index in = layer.in, out = slice.out, ld_dy = layer.out, first_in = 0, first_out = 0;
  if (shards != nullptr && shards->ranks() > 1) {
    rows = shards->all_rows(stream).rows();
    in /= shards->ranks();
    out /= shards->ranks();
    ld_dy = out;
    first_in = shards->index() * in;
    first_out = shards->index() * out;
    all_low_.Resize(rows * r);
    all_low_grad_.Resize(rows * r);
    all_x_.Resize(x.type, rows * in);
    all_dy_.Resize(slice_dy.type, rows * out);
    using Kind = TokenShards::Transfer::Kind;
    shards->Exchange({{Kind::kGather, stream, r, 0, low, all_low_.data()},
                      {Kind::kGather, stream, r, 0, low_grad, all_low_grad_.data()},
                      {Kind::kFeatures, stream, layer.in, 0, x, all_x_.data()},
                      {Kind::kFeatures, stream, slice.out, layer.out, slice_dy, all_dy_.data()}});
    low = all_low_.data();
    low_grad = all_low_grad_.data();
    x = all_x_.data();
    slice_dy = all_dy_.data();
  }
  LinearBackwardWeightInSlices(rows, r, out, slice.out / layer.heads, low, r, slice_dy, ld_dy,
                               gradient + slice.b + first_out * r);
  a_gradient_.Resize(in * r);
  a_gradient_.Zero();
  LinearBackwardWeightInSlices(rows, r, in, layer.in / layer.heads, low_grad, r, x, in, a_gradient_.data());
  AddTransposed(in, r, a_gradient_.data(), gradient + slice.a + first_in, layer.in);
}

}  // namespace spotlight
