// Matrix products and the linear layer y = x W^T + b (W is [out, in], as in the checkpoints).
//
// Bits never depend on the number of threads. Where A is not transposed (LinearForward, LinearBackwardInput) a result
// row depends on its own input row only: bits do not change with the number of rows in the call. Where A is transposed
// (LinearBackwardWeight) every result is a sum over all rows of the call, in an order that the shape alone decides.
// kernels/linear_test and threads_test check both on the machine at hand.
// Sums are fp32. CPU back end: oneDNN, fp32 operands and results. Weights may be stored in bfloat16; they are widened,
// panel by panel, to fp32 and everything else is fp32: the result has no other error than that of the stored weights.
// A back end that computes from bfloat16 rounds both operands to it if one of them or the result is; what is added to a
// bfloat16 result, it is read, added to in fp32 and rounded once more.
#pragma once

#include <cstdint>

#include "base/bfloat16.hpp"
#include "kernels/activations.hpp"

namespace spotlight {

// C [m, n] = op(A) op(B) (+ C if accumulate). op transposes if the flag is set: A is stored [m, k]
// (or [k, m] when transposed) with row stride lda; B [k, n] (or [n, k]) with ldb; C with ldc.
struct GemmShape {
  bool transpose_a = false;
  bool transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  bool accumulate = false;
};
void Gemm(const GemmShape& shape, ConstActivations a, ConstActivations b, Activations c);

// A weight matrix [out, in] as it is stored: one of the two is set.
struct WeightMatrix {
  const float* fp32 = nullptr;
  const Bfloat16* bf16 = nullptr;

  WeightMatrix operator+(std::int64_t offset) const {
    return {fp32 == nullptr ? nullptr : fp32 + offset, bf16 == nullptr ? nullptr : bf16 + offset};
  }
};

// y [rows, out] = x [rows, in] W^T + bias; bias may be null. x and y have row strides ldx >= in, ldy >= out.
void LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                   WeightMatrix weight, const float* bias, Activations y, std::int64_t ldy);

// dx [rows, in] = dy [rows, out] W (added to dx if accumulate).
void LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations dy, std::int64_t ldy,
                         WeightMatrix weight, Activations dx, std::int64_t ldx, bool accumulate);

// Part `index` of `count` of the work on one result, shared out over ranks that have the same operands.
struct WorkShare {
  int index = 0, count = 1;
};

// dW [out, in] += dy^T x, dbias [out] += column sums of dy (dbias may be null). The sum over rows is
// in one fixed order for a given number of rows. share: only some rows of dW and numbers of dbias, with the bits that
// they have when all are computed (a part may be empty); what other shares compute is left alone.
void LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                          ConstActivations dy, std::int64_t ldy, float* dweight, float* dbias, WorkShare share = {});

// The same without bias in slices of `slice` output features, each as a call of its own: the bits of a slice do not
// depend on which others are computed beside it. `slice` divides out.
void LinearBackwardWeightInSlices(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t slice,
                                  ConstActivations x, std::int64_t ldx, ConstActivations dy, std::int64_t ldy,
                                  float* dweight);

// to [columns, rows] += transpose of from [rows, columns]; `to` has row stride ld_to.
void AddTransposed(std::int64_t rows, std::int64_t columns, const float* from, float* to, std::int64_t ld_to);

}  // namespace spotlight
