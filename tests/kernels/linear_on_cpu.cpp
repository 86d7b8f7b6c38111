#include "tests/kernels/linear_on_cpu.hpp"

#include <vector>

#include "base/sequence_group.hpp"
#include "kernels/cuda/matrix_rows.hpp"
#include "kernels/operations_kokkos.hpp"

namespace spotlight::linear_on_cpu {
namespace {

bool IsBf16(ConstActivations values) { return values.type == ElementType::kBf16; }

ConstActivations Values(const WeightMatrix& weight) {
  return weight.bf16 != nullptr ? ConstActivations(weight.bf16) : ConstActivations(weight.fp32);
}

// A matrix of the caller's.
template <typename Pointer>
struct Matrix {
  Pointer values;
  std::int64_t rows, columns, stride;
};

// fp32 numbers of a matrix: itself, or a dense copy that has them rounded to bfloat16.
class Operand {
 public:
  Operand(const Matrix<ConstActivations>& matrix, bool rounded) : stride_(matrix.stride) {
    if (!rounded) {
      data_ = matrix.values.As<float>();
      return;
    }
    stride_ = matrix.columns;
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      const ConstActivations from = matrix.values + row * matrix.stride;
      for (std::int64_t j = 0; j < matrix.columns; ++j) {
        copy_.push_back(ToFloat(IsBf16(from) ? from.As<Bfloat16>()[j] : ToBfloat16(from.As<float>()[j])));
      }
    }
    data_ = copy_.data();
  }
  const float* data() const { return data_; }
  std::int64_t stride() const { return stride_; }

 private:
  std::vector<float> copy_;
  const float* data_ = nullptr;
  std::int64_t stride_;
};

// fp32 memory that a result is computed in: the caller's, or a dense copy that is rounded into it at the end.
class Result {
 public:
  explicit Result(const Matrix<Activations>& matrix) : matrix_(matrix) {
    if (!IsBf16(matrix.values)) return;
    for (std::int64_t row = 0; row < matrix.rows; ++row) {
      const auto* from = (matrix.values + row * matrix.stride).As<Bfloat16>();
      for (std::int64_t j = 0; j < matrix.columns; ++j) copy_.push_back(ToFloat(from[j]));
    }
  }
  ~Result() {
    if (!IsBf16(matrix_.values)) return;
    for (std::int64_t row = 0; row < matrix_.rows; ++row) {
      auto* to = (matrix_.values + row * matrix_.stride).As<Bfloat16>();
      for (std::int64_t j = 0; j < matrix_.columns; ++j) {
        to[j] = ToBfloat16(copy_[static_cast<std::size_t>(row * matrix_.columns + j)]);
      }
    }
  }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;

  float* data() { return IsBf16(matrix_.values) ? copy_.data() : matrix_.values.As<float>(); }
  std::int64_t stride() const { return IsBf16(matrix_.values) ? matrix_.columns : matrix_.stride; }

 private:
  Matrix<Activations> matrix_;
  std::vector<float> copy_;
};

std::vector<float> RoundedBias(const float* bias, std::int64_t size, bool rounded) {
  std::vector<float> values(bias, bias + (bias == nullptr ? 0 : size));
  for (float& value : values) value = rounded ? ToFloat(ToBfloat16(value)) : value;
  return values;
}

}  // namespace

void Gemm(const GemmShape& shape, ConstActivations a, ConstActivations b, Activations c) {
  const bool narrow = IsBf16(a) || IsBf16(b) || IsBf16(c);
  const Operand left({a, shape.transpose_a ? shape.k : shape.m, shape.transpose_a ? shape.m : shape.k, shape.lda},
                     narrow);
  const Operand right({b, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n, shape.ldb},
                      narrow);
  Result result({c, shape.m, shape.n, shape.ldc});
  GemmShape dense = shape;
  dense.lda = left.stride();
  dense.ldb = right.stride();
  dense.ldc = result.stride();
  kokkos::Gemm(dense, left.data(), right.data(), result.data());
}

void LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                   WeightMatrix weight, const float* bias, Activations y, std::int64_t ldy) {
  const bool narrow = IsBf16(x) || IsBf16(Values(weight)) || IsBf16(y);
  const Operand from({x, rows, in, ldx}, narrow), matrix({Values(weight), out, in, in}, narrow);
  const std::vector<float> added = RoundedBias(bias, out, IsBf16(y));
  Result result({y, rows, out, ldy});
  kokkos::LinearForward(rows, in, out, from.data(), from.stride(), {.fp32 = matrix.data()},
                        bias == nullptr ? nullptr : added.data(), result.data(), result.stride());
}

void LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations dy, std::int64_t ldy,
                         WeightMatrix weight, Activations dx, std::int64_t ldx, bool accumulate) {
  const bool narrow = IsBf16(dy) || IsBf16(Values(weight)) || IsBf16(dx);
  const Operand from({dy, rows, out, ldy}, narrow), matrix({Values(weight), out, in, in}, narrow);
  Result result({dx, rows, in, ldx});
  kokkos::LinearBackwardInput(rows, in, out, from.data(), from.stride(), {.fp32 = matrix.data()}, result.data(),
                              result.stride(), accumulate);
}

void LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                          ConstActivations dy, std::int64_t ldy, float* dweight, float* dbias, WorkShare share) {
  const bool narrow = IsBf16(x) || IsBf16(dy);
  const Operand from({x, rows, in, ldx}, narrow), to({dy, rows, out, ldy}, narrow);
  kokkos::LinearBackwardWeight(rows, in, out, from.data(), from.stride(), to.data(), to.stride(), dweight, nullptr,
                               share);
  if (dbias == nullptr) return;
  const ShareRange own = ShareOf(out, share.index, share.count);
  cuda::AddColumnSums(rows, own.size(), dy + own.begin, ldy, dbias + own.begin);
}

void LinearBackwardWeightInSlices(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t slice,
                                  ConstActivations x, std::int64_t ldx, ConstActivations dy, std::int64_t ldy,
                                  float* dweight) {
  const bool narrow = IsBf16(x) || IsBf16(dy);
  const Operand from({x, rows, in, ldx}, narrow), to({dy, rows, out, ldy}, narrow);
  kokkos::LinearBackwardWeightInSlices(rows, in, out, slice, from.data(), from.stride(), to.data(), to.stride(),
                                       dweight);
}

}  // namespace spotlight::linear_on_cpu
