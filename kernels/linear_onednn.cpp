// Matrix products by oneDNN `matmul` primitives on plain (unpacked) strided fp32 operands.
//
// oneDNN always runs on the calling thread: the rows of the result are split here, over Kokkos' threads, and every row
// is the same chain of operations wherever the borders fall, so bits do not depend on the number of threads. Making a
// primitive takes about a millisecond (it compiles machine code), so each thread keeps every one it has used, with its
// memory descriptors and scratch space ready: a call then costs about a microsecond beside the arithmetic.
//
// A primitive that oneDNN cannot make or run is a bug of ours: dnnl::error passes through as an internal error.
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstdint>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/sequence_group.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

// Rows of a call to oneDNN: a multiple of kRowMultiple, at most kMostRows; a call of another thread has to be worth it.
constexpr std::int64_t kRowMultiple = 16;
constexpr std::int64_t kMostRows = 256;
constexpr std::int64_t kCallFlops = 1'000'000;
// oneDNN 2.6 leaves its blocked kernel, and so the order of its sums, for some shapes with fewer rows than this.
constexpr std::int64_t kFewestRows = 16;
// Terms of a sum in one call where B is not transposed: oneDNN reads such a B in place, and a long one column by
// column thrashes the caches (3072 terms: 70 against 101 GF/s on a Zen 4 core).
constexpr std::int64_t kDepth = 512;

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
    const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream_.get(), argument_count_, arguments_);
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

// Rows of C that one call of oneDNN computes. Of a plain A any number gives the same bits. Of a transposed A the order
// within a row depends on the number of rows, so that number may depend on the shape only.
std::int64_t RowsOfCall(const GemmShape& shape) {
  if (shape.transpose_a) {
    if (shape.m >= 768) return 192;
    // Two calls for two threads where the product is worth it: 96 -> 48, 288 -> 144, 384 -> 192.
    return shape.k >= 256 ? std::max<std::int64_t>((shape.m / 2 + 47) / 48 * 48, 48) : shape.m;
  }
  const std::int64_t threads = Kokkos::DefaultHostExecutionSpace().concurrency();
  const std::int64_t worthwhile = 2 * shape.m * shape.n * shape.k / kCallFlops;
  const std::int64_t calls = std::clamp<std::int64_t>(worthwhile, 1, threads);
  const std::int64_t rows = (shape.m + calls - 1) / calls;
  return std::min((rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple, kMostRows);
}

// The product of fewer than kFewestRows rows, as the first rows of one with kFewestRows.
void RunFewRows(const Key& key, const float* a, const float* b, const float* bias, float* c) {
  const GemmShape& shape = key.shape;
  thread_local std::vector<float> a_rows, c_rows;
  a_rows.assign(static_cast<std::size_t>(kFewestRows * shape.lda), 0.0f);
  c_rows.assign(static_cast<std::size_t>(kFewestRows * shape.ldc), 0.0f);
  for (std::int64_t i = 0; i < shape.m; ++i) {
    std::copy_n(a + i * shape.lda, shape.k, a_rows.data() + i * shape.lda);
    if (shape.accumulate) std::copy_n(c + i * shape.ldc, shape.n, c_rows.data() + i * shape.ldc);
  }
  Key padded = key;
  padded.shape.m = kFewestRows;
  RunOnThisThread(padded, a_rows.data(), b, bias, c_rows.data());
  for (std::int64_t i = 0; i < shape.m; ++i) {
    std::copy_n(c_rows.data() + i * shape.ldc, shape.n, c + i * shape.ldc);
  }
}

// share: of the calls, so that the bits of a row are the same whoever computes it.
void Multiply(const GemmShape& shape, const float* a, const float* b, const float* bias, float* c,
              WorkShare share = {}) {
  if (shape.m == 0 || shape.n == 0) return;
  SPOTLIGHT_REQUIRE(shape.m > 0 && shape.n > 0 && shape.k > 0, "a matrix product needs positive sizes");
  const std::int64_t rows = RowsOfCall(shape);
  const std::int64_t calls = std::max<std::int64_t>(1, shape.m / rows);  // the last one takes what is left over
  const std::int64_t depth = shape.transpose_a || shape.transpose_b ? shape.k : kDepth;
  const ShareRange own = ShareOf(calls, share.index, share.count);
  ParallelFor("Gemm", own.size(), [&](std::int64_t item) {
    const std::int64_t call = own.begin + item, first = call * rows;
    const float* a_rows = a + first * (shape.transpose_a ? 1 : shape.lda);
    for (std::int64_t term = 0; term < shape.k; term += depth) {
      Key key{shape, bias != nullptr && term == 0};
      key.shape.m = call + 1 < calls ? rows : shape.m - first;
      key.shape.k = std::min(depth, shape.k - term);
      key.shape.accumulate = shape.accumulate || term > 0;
      const auto run = !shape.transpose_a && key.shape.m < kFewestRows ? RunFewRows : RunOnThisThread;
      run(key, a_rows + term * (shape.transpose_a ? shape.lda : 1), b + term * (shape.transpose_b ? 1 : shape.ldb),
          key.bias ? bias : nullptr, c + first * shape.ldc);
    }
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

// Calls body(first, count, panel) for panels W[first : first + count, :] of a matrix [out, in], widened to fp32. The
// size of a panel depends on `in` alone. Two million numbers: of smaller panels the backward adds to dx too often (in
// 12288, 1088 rows on a Zen 4 core: 83 against 92 GF/s with half of it, 32 with an eighth), larger ones leave the
// cache.
template <typename Body>
void ForEachPanel(const Bfloat16* weight, std::int64_t out, std::int64_t in, const Body& body) {
  const std::int64_t most = std::max<std::int64_t>(16, (std::int64_t{1} << 21) / in / 16 * 16);
  static thread_local Buffer panel;
  panel.Resize(std::min(most, out) * in);
  for (std::int64_t first = 0; first < out; first += most) {
    const std::int64_t count = std::min(most, out - first);
    const Bfloat16* from = weight + first * in;
    float* to = panel.data();
    ParallelBlocks("WidenPanel", count * in, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) to[i] = ToFloat(from[i]);
    });
    body(first, count, to);
  }
}

GemmShape WeightGradient(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t ldx, std::int64_t ldy) {
  return {.transpose_a = true, .m = out, .n = in, .k = rows, .lda = ldy, .ldb = ldx, .ldc = in, .accumulate = true};
}

}  // namespace

void Gemm(const GemmShape& shape, ConstActivations a, ConstActivations b, Activations c) {
  Multiply(shape, a.As<float>(), b.As<float>(), nullptr, c.As<float>());
}

void LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations from, std::int64_t ldx,
                   WeightMatrix weight, const float* bias, Activations to, std::int64_t ldy) {
  const float* x = from.As<float>();
  float* y = to.As<float>();
  GemmShape shape{.transpose_b = true, .m = rows, .n = out, .k = in, .lda = ldx, .ldb = in, .ldc = ldy};
  if (weight.fp32 != nullptr) return Multiply(shape, x, weight.fp32, bias, y);
  if (rows == 0) return;
  // By way of dense columns: into rows with gaps oneDNN is slower, at 64 rows by a quarter.
  static thread_local Buffer columns;
  ForEachPanel(weight.bf16, out, in, [&](std::int64_t first, std::int64_t count, const float* panel) {
    columns.Resize(rows * count);
    float* from = columns.data();
    shape.n = shape.ldc = count;
    Multiply(shape, x, panel, bias == nullptr ? nullptr : bias + first, from);
    ParallelFor("PutColumns", rows,
                [=](std::int64_t row) { std::copy_n(from + row * count, count, y + row * ldy + first); });
  });
}

void LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations dto, std::int64_t ldy,
                         WeightMatrix weight, Activations dfrom, std::int64_t ldx, bool accumulate) {
  const float* dy = dto.As<float>();
  float* dx = dfrom.As<float>();
  GemmShape shape{.m = rows, .n = in, .k = out, .lda = ldy, .ldb = in, .ldc = ldx, .accumulate = accumulate};
  if (weight.fp32 != nullptr) return Multiply(shape, dy, weight.fp32, nullptr, dx);
  if (rows == 0) return;
  ForEachPanel(weight.bf16, out, in, [&](std::int64_t first, std::int64_t count, const float* panel) {
    shape.k = count;
    shape.accumulate = accumulate || first > 0;
    Multiply(shape, dy + first, panel, nullptr, dx);
  });
}

void LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations from, std::int64_t ldx,
                          ConstActivations dto, std::int64_t ldy, float* dweight, float* dbias, WorkShare share) {
  const float *x = from.As<float>(), *dy = dto.As<float>();
  if (rows == 0) return;
  Multiply(WeightGradient(rows, in, out, ldx, ldy), dy, x, nullptr, dweight, share);
  if (dbias == nullptr) return;
  const ShareRange own = ShareOf(out, share.index, share.count);
  AddColumnSums(rows, own.size(), dy + own.begin, ldy, dbias + own.begin);
}

void LinearBackwardWeightInSlices(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t slice,
                                  ConstActivations from, std::int64_t ldx, ConstActivations dto, std::int64_t ldy,
                                  float* dweight) {
  const float *x = from.As<float>(), *dy = dto.As<float>();
  SPOTLIGHT_REQUIRE(slice > 0 && out % slice == 0, "slices of equal size");
  constexpr std::int64_t kTerms = 256;  // rows in one call: a packed slice stays in the L2 cache
  ParallelFor("LinearBackwardWeightInSlices", out / slice, [&](std::int64_t item) {
    const std::int64_t first = item * slice;
    // oneDNN orders long sums by the row strides too: 1088 rows of the whole dy and of a few slices differ. A packed
    // slice makes every call the same.
    thread_local std::vector<float> packed;
    packed.resize(static_cast<std::size_t>(kTerms * (slice + in)));
    float* packed_dy = packed.data();
    float* packed_x = packed_dy + kTerms * slice;
    for (std::int64_t row = 0; row < rows; row += kTerms) {
      const std::int64_t terms = std::min(kTerms, rows - row);
      for (std::int64_t i = 0; i < terms; ++i) {
        std::copy_n(dy + (row + i) * ldy + first, slice, packed_dy + i * slice);
        if (ldx != in) std::copy_n(x + (row + i) * ldx, in, packed_x + i * in);
      }
      RunOnThisThread({WeightGradient(terms, in, slice, in, slice), false}, packed_dy,
                      ldx == in ? x + row * in : packed_x, nullptr, dweight + first * in);
    }
  });
}

void AddTransposed(std::int64_t rows, std::int64_t columns, const float* from, float* to, std::int64_t ld_to) {
  ParallelFor("AddTransposed", columns, [=](std::int64_t column) {
    for (std::int64_t row = 0; row < rows; ++row) to[column * ld_to + row] += from[row * columns + column];
  });
}

}  // namespace spotlight::kokkos
