// Matrix products by cuBLASLt (kernels/linear.hpp), sums in fp32.
//
// Numbers: fp32 operands and results give an fp32 product, not TF32. Where one operand or the result is bf16, so are
// both operands: an fp32 one is rounded into scratch memory first (latents, text embeddings, adapters), and so is the
// bias if y is bf16, because cuBLASLt takes it in y's type only. What is added to a bf16 result is rounded with it once
// more.
//
// Bits: cuBLASLt's heuristic is asked once for each shape, and what it chose (kernel, tile, stages, cluster, split of
// the sum) is kept. It is asked for kPlannedRows rows whatever the call has, and without a split of the sum, so every
// element is one chain over k in the order of one kernel, however many rows are beside it. In products with a
// transposed A the sum runs over the call's rows: there the split is allowed, with partial sums added in order by a
// second kernel. Nothing is documented beyond that: kernels/linear_test checks it on the device at hand.
//
// A product that cuBLASLt cannot do, or a call that fails, is an internal error.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/sequence_group.hpp"
#include "kernels/cuda/library.hpp"
#include "kernels/cuda/matrix_rows.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr std::int64_t kPlannedRows = 4096;          // about an image of 1024 px
constexpr std::int64_t kMostRows = 1 << 17;          // of one product; more are several
constexpr std::int64_t kMostSliceColumns = 1 << 14;  // output features in one LinearBackwardWeightInSlices
constexpr std::size_t kWorkspace = std::size_t{64} << 20;
constexpr int kCandidates = 32;

// C [m, n] = op(A) op(B) (+ bias) (+ C), row-major as GemmShape has it. a and b have one element type. The algorithm is
// the one for planned_m rows and has to do for any number of rows up to most_m.
struct Product {
  GemmShape shape;
  ConstActivations a, b;
  ConstActivations bias;  // [n], of c's type; may be null
  Activations c;
  std::int64_t planned_m = 0, most_m = 0;
};

cudaDataType_t CudaType(ElementType type) { return type == ElementType::kBf16 ? CUDA_R_16BF : CUDA_R_32F; }

// The largest power of two up to 16 bytes that every row of the matrix is aligned to.
std::uint32_t Alignment(ConstActivations matrix, std::int64_t stride) {
  const auto bits =
      reinterpret_cast<std::uintptr_t>(matrix.data) | static_cast<std::uintptr_t>(stride * SizeOf(matrix.type)) | 16;
  return static_cast<std::uint32_t>(bits & -bits);
}

// cuBLASLt sees the transposes, because it counts columns first: C^T [n, m] = op(B)^T op(A)^T, B before A. The bias
// then runs down C^T's columns, as its epilogue wants it.
struct Descriptions {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c;

  // Of the product with m rows in place of its own.
  Descriptions(const Product& product, std::int64_t m) {
    const GemmShape& s = product.shape;
    const auto describe = [](cublasLtMatrixLayoutOpaque_t& layout, ElementType type, std::int64_t rows,
                             std::int64_t columns, std::int64_t stride) {
      SPOTLIGHT_CUDA_CALL(cublasLtMatrixLayoutInit(&layout, CudaType(type), static_cast<std::uint64_t>(columns),
                                                   static_cast<std::uint64_t>(rows), std::max(stride, columns)));
    };
    describe(a, product.a.type, s.transpose_a ? s.k : m, s.transpose_a ? m : s.k, s.lda);
    describe(b, product.b.type, s.transpose_b ? s.n : s.k, s.transpose_b ? s.k : s.n, s.ldb);
    describe(c, product.c.type, m, s.n, s.ldc);
    SPOTLIGHT_CUDA_CALL(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    Set(CUBLASLT_MATMUL_DESC_TRANSA, s.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, s.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!product.bias) return;
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data);
  }

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    SPOTLIGHT_CUDA_CALL(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value));
  }
};

// Whether the algorithm does for the product with m rows, within the workspace.
bool TakesRows(const Product& product, std::int64_t m, const cublasLtMatmulAlgo_t& algorithm) {
  Descriptions d(product, m);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(CublasLtHandle(), &d.operation, &d.b, &d.a, &d.c, &d.c, &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspace;
}

bool SplitsTheSum(const cublasLtMatmulAlgo_t& algorithm) {
  std::int32_t parts = 0;
  SPOTLIGHT_CUDA_CALL(
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, nullptr));
  return parts != 0 && parts != 1;
}

cublasLtMatmulAlgo_t ChooseAlgorithm(const Product& product) {
  const GemmShape& s = product.shape;
  cublasLtMatmulPreferenceOpaque_t preference;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    SPOTLIGHT_CUDA_CALL(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value));
  };
  SPOTLIGHT_CUDA_CALL(cublasLtMatmulPreferenceInit(&preference));
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspace});
  const std::uint32_t reductions =
      s.transpose_a ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, Alignment(product.b, s.ldb));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, Alignment(product.a, s.lda));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, Alignment(product.c, s.ldc));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, Alignment(product.c, s.ldc));

  Descriptions d(product, product.planned_m);
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(CublasLtHandle(), &d.operation, &d.b, &d.a, &d.c, &d.c,
                                                               &preference, kCandidates, candidates.data(), &count);
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulAlgo_t& algorithm = candidates[static_cast<std::size_t>(i)].algo;
    if (candidates[static_cast<std::size_t>(i)].state != CUBLAS_STATUS_SUCCESS) continue;
    if (!s.transpose_a && SplitsTheSum(algorithm)) continue;
    const std::array sizes{std::int64_t{1}, std::int64_t{17}, product.planned_m, product.most_m};
    if (std::all_of(sizes.begin(), sizes.end(), [&](auto m) { return TakesRows(product, m, algorithm); })) {
      return algorithm;
    }
  }
  FailRequire("an algorithm", __FILE__, __LINE__,
              "cuBLASLt has none of " + std::to_string(count) + " that takes every number of rows for n " +
                  std::to_string(s.n) + ", k " + std::to_string(s.k) + ", strides " + std::to_string(s.lda) + ", " +
                  std::to_string(s.ldb) + ", " + std::to_string(s.ldc) + ": " + FailureOf(status));
}

// The algorithm of the shape; every thread remembers those that it has used.
const cublasLtMatmulAlgo_t& AlgorithmOf(const Product& product) {
  const GemmShape& s = product.shape;
  using Key = std::array<std::int64_t, 15>;
  thread_local std::map<Key, cublasLtMatmulAlgo_t> algorithms;
  const Key key{s.transpose_a,
                s.transpose_b,
                s.accumulate,
                product.bias ? Alignment(product.bias, 0) : 0,
                static_cast<std::int64_t>(product.a.type),
                static_cast<std::int64_t>(product.c.type),
                product.planned_m,
                s.n,
                s.k,
                s.lda,
                s.ldb,
                s.ldc,
                Alignment(product.a, s.lda),
                Alignment(product.b, s.ldb),
                Alignment(product.c, s.ldc)};
  const auto place = algorithms.find(key);
  if (place != algorithms.end()) return place->second;
  return algorithms.emplace(key, ChooseAlgorithm(product)).first->second;
}

void Multiply(const Product& product, void* workspace) {
  const GemmShape& s = product.shape;
  SPOTLIGHT_REQUIRE(s.m > 0 && s.n > 0 && s.k > 0, "a matrix product needs positive sizes");
  SPOTLIGHT_REQUIRE(s.m <= product.most_m, "more rows than the algorithm was chosen for");
  const cublasLtMatmulAlgo_t& algorithm = AlgorithmOf(product);
  Descriptions d(product, s.m);
  const float one = 1.0f, beta = s.accumulate ? 1.0f : 0.0f;
  SPOTLIGHT_CUDA_CALL(cublasLtMatmul(CublasLtHandle(), &d.operation, &one, product.b.data, &d.b, product.a.data, &d.a,
                                     &beta, product.c.data, &d.c, product.c.data, &d.c, &algorithm, workspace,
                                     kWorkspace, CurrentStream()));
}

// A matrix [rows, columns] as it is given, and where it goes if it has to be rounded.
struct Operand {
  ConstActivations values;
  std::int64_t rows, columns, stride;
};

// Runs the product of `a` and `b` after rounding what must be. The shape's lda and ldb are filled in here.
void RoundAndMultiply(Product product, const Operand& a, const Operand& b, const float* bias) {
  const auto is_bf16 = [](const ConstActivations& x) { return x.type == ElementType::kBf16; };
  const bool narrow = is_bf16(a.values) || is_bf16(b.values) || is_bf16(product.c);
  const bool round_bias = bias != nullptr && is_bf16(product.c);
  const auto rounded_bytes = [&](const Operand& x) {
    return narrow && !is_bf16(x.values) ? static_cast<std::size_t>(x.rows * x.columns) * sizeof(Bfloat16) : 0;
  };
  const auto [workspace, rounded_a, rounded_b, rounded_bias] =
      ScratchPieces<4>({kWorkspace, rounded_bytes(a), rounded_bytes(b),
                        round_bias ? static_cast<std::size_t>(product.shape.n) * sizeof(Bfloat16) : 0});
  const auto prepare = [&](const Operand& x, std::byte* rounded, ConstActivations& to, std::int64_t& stride) {
    to = x.values;
    stride = x.stride;
    if (rounded_bytes(x) == 0) return;
    auto* rows = reinterpret_cast<Bfloat16*>(rounded);
    RoundRows(x.rows, x.columns, x.values.As<float>(), x.stride, rows);
    to = rows;
    stride = x.columns;
  };
  prepare(a, rounded_a, product.a, product.shape.lda);
  prepare(b, rounded_b, product.b, product.shape.ldb);
  product.bias = bias;
  if (round_bias) {
    auto* values = reinterpret_cast<Bfloat16*>(rounded_bias);
    RoundRows(1, product.shape.n, bias, product.shape.n, values);
    product.bias = values;
  }
  Multiply(product, workspace);
}

// C, and product.shape.m rows of A, in pieces: the bits of a row do not depend on the rows beside it.
void MultiplyInPieces(Product product, Operand a, const Operand& b, const float* bias) {
  product.planned_m = kPlannedRows;
  product.most_m = kMostRows;
  for (std::int64_t left = product.shape.m; left > 0; left -= kMostRows) {
    product.shape.m = a.rows = std::min(left, kMostRows);
    RoundAndMultiply(product, a, b, bias);
    a.values = a.values + a.rows * a.stride;
    product.c = product.c + a.rows * product.shape.ldc;
  }
}

ConstActivations Values(const WeightMatrix& weight) {
  return weight.bf16 != nullptr ? ConstActivations(weight.bf16) : ConstActivations(weight.fp32);
}

// dW [m, in] += dy [rows, m]^T x [rows, in].
void AddWeightGradient(std::int64_t rows, std::int64_t in, std::int64_t m, ConstActivations x, std::int64_t ldx,
                       ConstActivations dy, std::int64_t ldy, float* dweight, std::int64_t planned_m,
                       std::int64_t most_m) {
  if (rows == 0 || m == 0) return;
  const GemmShape shape{.transpose_a = true, .m = m, .n = in, .k = rows, .ldc = in, .accumulate = true};
  RoundAndMultiply(
      {.shape = shape, .a = {}, .b = {}, .bias = {}, .c = dweight, .planned_m = planned_m, .most_m = most_m},
      {dy, rows, m, ldy}, {x, rows, in, ldx}, nullptr);
}

}  // namespace

void Gemm(const GemmShape& shape, ConstActivations a, ConstActivations b, Activations c) {
  if (shape.m == 0 || shape.n == 0) return;
  const Operand right{b, shape.transpose_b ? shape.n : shape.k, shape.transpose_b ? shape.k : shape.n, shape.ldb};
  Product product{.shape = shape, .a = {}, .b = {}, .bias = {}, .c = c};
  if (!shape.transpose_a) return MultiplyInPieces(product, {a, shape.m, shape.k, shape.lda}, right, nullptr);
  product.planned_m = product.most_m = shape.m;
  RoundAndMultiply(product, {a, shape.k, shape.m, shape.lda}, right, nullptr);
}

void LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                   WeightMatrix weight, const float* bias, Activations y, std::int64_t ldy) {
  const GemmShape shape{.transpose_b = true, .m = rows, .n = out, .k = in, .ldc = ldy};
  MultiplyInPieces({.shape = shape, .a = {}, .b = {}, .bias = {}, .c = y}, {x, rows, in, ldx},
                   {Values(weight), out, in, in}, bias);
}

void LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations dy, std::int64_t ldy,
                         WeightMatrix weight, Activations dx, std::int64_t ldx, bool accumulate) {
  const GemmShape shape{.m = rows, .n = in, .k = out, .ldc = ldx, .accumulate = accumulate};
  MultiplyInPieces({.shape = shape, .a = {}, .b = {}, .bias = {}, .c = dx}, {dy, rows, out, ldy},
                   {Values(weight), out, in, in}, nullptr);
}

void LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                          ConstActivations dy, std::int64_t ldy, float* dweight, float* dbias, WorkShare share) {
  // In units of so many rows of dW, so that every share has the alignment of the whole.
  constexpr std::int64_t kShareUnit = 64;
  const ShareRange units = ShareOf((out + kShareUnit - 1) / kShareUnit, share.index, share.count);
  const std::int64_t begin = units.begin * kShareUnit, own = std::min(units.end * kShareUnit, out) - begin;
  if (rows == 0 || own <= 0) return;
  AddWeightGradient(rows, in, own, x, ldx, dy + begin, ldy, dweight + begin * in, out, out);
  if (dbias != nullptr) AddColumnSums(rows, own, dy + begin, ldy, dbias + begin);
}

void LinearBackwardWeightInSlices(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t slice,
                                  ConstActivations x, std::int64_t ldx, ConstActivations dy, std::int64_t ldy,
                                  float* dweight) {
  SPOTLIGHT_REQUIRE(slice > 0 && out % slice == 0, "slices of equal size");
  // All at once: with the algorithm of one slice, a slice's bits are the same beside any others.
  AddWeightGradient(rows, in, out, x, ldx, dy, ldy, dweight, slice, kMostSliceColumns);
}

}  // namespace spotlight::cuda
