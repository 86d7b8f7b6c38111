// Matrix products by oneDNN `matmul` primitives on plain (unpacked) strided fp32 operands.
//
// oneDNN always runs on the calling thread: the rows of the result are split here, over Kokkos' threads, and every row
// is the same chain of operations wherever the borders fall, so bits do not depend on the number of threads. Making a
// primitive takes about a millisecond (it compiles machine code), so each thread keeps every one it has used, with its
// memory descriptors and scratch space ready: a call then costs about a microsecond beside the arithmetic.
//
// A primitive that oneDNN cannot make or run is a bug of ours: dnnl::error passes through as an internal error.
#include "kernels/linear.hpp"

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "base/error.hpp"
#include "kernels/parallel.hpp"

namespace spotlight {
namespace {

// Rows of a thread's share are a multiple of this, and a share holds at least this much work.
constexpr std::int64_t kRowMultiple = 16;
constexpr std::int64_t kShareFlops = 1'000'000;

// oneDNN reads the thread count both when it plans a primitive and when it runs one.
class OneThread {
 public:
#ifdef _OPENMP
  OneThread() : saved_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(saved_); }
#else
  OneThread() = default;
  ~OneThread() = default;
#endif
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
#ifdef _OPENMP
  int saved_;
#endif
};

struct Key {
  GemmShape shape;
  bool bias = false;

  bool operator==(const Key& other) const {
    const GemmShape& a = shape;
    const GemmShape& b = other.shape;
    return a.m == b.m && a.n == b.n && a.k == b.k && a.lda == b.lda && a.ldb == b.ldb && a.ldc == b.ldc &&
           a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b && a.accumulate == b.accumulate &&
           bias == other.bias;
  }
};

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    const GemmShape& s = key.shape;
    const int flags = s.transpose_a | s.transpose_b << 1 | s.accumulate << 2 | key.bias << 3;
    std::uint64_t hash = static_cast<std::uint64_t>(flags);
    for (const std::int64_t value : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) {
      hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio
      hash ^= hash >> 32;
    }
    return hash;
  }
};

const dnnl::engine& CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// One primitive with the memory objects that it is run with. Used by one thread only.
class Matmul {
 public:
  explicit Matmul(const Key& key) : stream_(CpuEngine()) {
    using Type = dnnl::memory::data_type;
    const GemmShape& s = key.shape;
    const auto describe = [](std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t stride) {
      return dnnl::memory::desc({rows, columns}, Type::f32,
                                transposed ? dnnl::memory::dims{1, stride} : dnnl::memory::dims{stride, 1});
    };
    const auto a = describe(s.m, s.k, s.transpose_a, s.lda);
    const auto b = describe(s.k, s.n, s.transpose_b, s.ldb);
    const auto c = describe(s.m, s.n, false, s.ldc);
    const auto bias = describe(1, s.n, false, s.n);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::desc operation = key.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc plan(operation, attributes, CpuEngine());
    primitive_ = dnnl::matmul(plan);
    a_ = dnnl::memory(a, CpuEngine(), nullptr);
    b_ = dnnl::memory(b, CpuEngine(), nullptr);
    c_ = dnnl::memory(c, CpuEngine(), nullptr);
    scratch_ = dnnl::memory(plan.scratchpad_desc(), CpuEngine());
    arguments_[0] = {DNNL_ARG_SRC, a_.get()};
    arguments_[1] = {DNNL_ARG_WEIGHTS, b_.get()};
    arguments_[2] = {DNNL_ARG_DST, c_.get()};
    arguments_[3] = {DNNL_ARG_SCRATCHPAD, scratch_.get()};
    if (key.bias) {
      bias_ = dnnl::memory(bias, CpuEngine(), nullptr);
      arguments_[4] = {DNNL_ARG_BIAS, bias_.get()};
      argument_count_ = 5;
    }
  }

  void Run(const float* a, const float* b, const float* bias, float* c) {
    a_.set_data_handle(const_cast<float*>(a));
    b_.set_data_handle(const_cast<float*>(b));
    c_.set_data_handle(c);
    if (bias != nullptr) bias_.set_data_handle(const_cast<float*>(bias));
    // The C call, because the C++ one builds a vector of arguments from a hash map each time.
    const dnnl_status_t status =
        dnnl_primitive_execute(primitive_.get(), stream_.get(), argument_count_, arguments_);
    SPOTLIGHT_REQUIRE(status == dnnl_success, "oneDNN matmul failed");
  }

 private:
  dnnl::stream stream_;
  dnnl::matmul primitive_;
  dnnl::memory a_, b_, c_, bias_, scratch_;
  dnnl_exec_arg_t arguments_[5];
  int argument_count_ = 4;
};

void RunOnThisThread(const Key& key, const float* a, const float* b, const float* bias, float* c) {
  thread_local std::unordered_map<Key, std::unique_ptr<Matmul>, KeyHash> primitives;
  const OneThread guard;
  std::unique_ptr<Matmul>& matmul = primitives[key];
  if (matmul == nullptr) matmul = std::make_unique<Matmul>(key);
  matmul->Run(a, b, bias, c);
}

void Multiply(const GemmShape& shape, const float* a, const float* b, const float* bias, float* c) {
  if (shape.m == 0 || shape.n == 0) return;
  SPOTLIGHT_REQUIRE(shape.m > 0 && shape.n > 0 && shape.k > 0, "a matrix product needs positive sizes");
  const std::int64_t threads = Kokkos::DefaultHostExecutionSpace().concurrency();
  const std::int64_t flops_per_row = 2 * shape.n * shape.k;
  const std::int64_t useful = std::max<std::int64_t>(1, shape.m * flops_per_row / kShareFlops);
  const std::int64_t wanted = std::min(threads, useful);
  const std::int64_t rows = ((shape.m + wanted - 1) / wanted + kRowMultiple - 1) / kRowMultiple * kRowMultiple;
  ParallelFor("Gemm", (shape.m + rows - 1) / rows, [&](std::int64_t share) {
    const std::int64_t first = share * rows;
    Key key{shape, bias != nullptr};
    key.shape.m = std::min(rows, shape.m - first);
    RunOnThisThread(key, a + first * (shape.transpose_a ? 1 : shape.lda), b, bias, c + first * shape.ldc);
  });
}

// sums [columns] += column sums of x [rows, columns]: blocks of kSumRows rows, added in order.
void AddColumnSums(std::int64_t rows, std::int64_t columns, const float* x, std::int64_t ldx, float* sums) {
  constexpr std::int64_t kSumRows = 64;
  constexpr std::int64_t kSumColumns = 64;
  ParallelFor("AddColumnSums", (columns + kSumColumns - 1) / kSumColumns, [&](std::int64_t item) {
    const std::int64_t first = item * kSumColumns;
    const std::int64_t count = std::min(kSumColumns, columns - first);
    for (std::int64_t begin = 0; begin < rows; begin += kSumRows) {
      float partial[kSumColumns] = {};
      for (std::int64_t i = begin; i < std::min(rows, begin + kSumRows); ++i) {
        const float* row = x + i * ldx + first;
        for (std::int64_t j = 0; j < count; ++j) partial[j] += row[j];
      }
      for (std::int64_t j = 0; j < count; ++j) sums[first + j] += partial[j];
    }
  });
}

}  // namespace

void Gemm(const GemmShape& shape, const float* a, const float* b, float* c) { Multiply(shape, a, b, nullptr, c); }

void LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, const float* x, std::int64_t ldx,
                   const float* weight, const float* bias, float* y, std::int64_t ldy) {
  GemmShape shape{.transpose_b = true, .m = rows, .n = out, .k = in, .lda = ldx, .ldb = in, .ldc = ldy};
  Multiply(shape, x, weight, bias, y);
}

void LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, const float* dy, std::int64_t ldy,
                         const float* weight, float* dx, std::int64_t ldx, bool accumulate) {
  GemmShape shape{.m = rows, .n = in, .k = out, .lda = ldy, .ldb = in, .ldc = ldx, .accumulate = accumulate};
  Multiply(shape, dy, weight, nullptr, dx);
}

void LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, const float* x, std::int64_t ldx,
                          const float* dy, std::int64_t ldy, float* dweight, float* dbias) {
  if (rows == 0) return;
  GemmShape shape{
      .transpose_a = true, .m = out, .n = in, .k = rows, .lda = ldy, .ldb = ldx, .ldc = in, .accumulate = true};
  Multiply(shape, dy, x, nullptr, dweight);
  if (dbias != nullptr) AddColumnSums(rows, out, dy, ldy, dbias);
}

}  // namespace spotlight
