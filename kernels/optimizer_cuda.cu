// The optimizer on CUDA devices (kernels/optimizer.hpp): one launch over a flat array, no copy of it. The sums are in
// double (kernels/cuda/sums.cuh); what returns a number waits for the device.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/sums.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

struct AdamWBody {
  float grad_scale, keep, blend1, beta2, blend2, step_size, root_correction, eps;
  const float* grad;
  float *weight, *m, *v;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    const Quad gradient = LoadQuad(grad + at, extent);
    Quad w = LoadQuad(weight + at, extent), mean = LoadQuad(m + at, extent), square = LoadQuad(v + at, extent);
    for (int j = 0; j < 4; ++j) {
      const float g = gradient.at[j] * grad_scale;
      mean.at[j] = __fmaf_rn(blend1, g - mean.at[j], mean.at[j]);
      square.at[j] = __fmaf_rn(blend2 * g, g, __fmul_rn(beta2, square.at[j]));
      const float root = std::sqrt(square.at[j]) / root_correction;
      w.at[j] = __fmul_rn(w.at[j], keep) - __fmul_rn(step_size, mean.at[j] / (root + eps));
    }
    StoreQuad(m + at, mean, extent);
    StoreQuad(v + at, square, extent);
    StoreQuad(weight + at, w, extent);
  }
};

struct EmaBody {
  float blend;
  const float* weight;
  float* ema;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    const Quad target = LoadQuad(weight + at, extent);
    Quad average = LoadQuad(ema + at, extent);
    for (int j = 0; j < 4; ++j) average.at[j] = __fmaf_rn(blend, target.at[j] - average.at[j], average.at[j]);
    StoreQuad(ema + at, average, extent);
  }
};

struct AxpyBody {
  float a;
  const float* x;
  float* y;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    const Quad added = LoadQuad(x + at, extent);
    Quad sum = LoadQuad(y + at, extent);
    for (int j = 0; j < 4; ++j) sum.at[j] = __fmaf_rn(a, added.at[j], sum.at[j]);
    StoreQuad(y + at, sum, extent);
  }
};

struct ScaleBody {
  float a;
  float* y;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    Quad quad = LoadQuad(y + at, extent);
    for (float& element : quad.at) element *= a;
    StoreQuad(y + at, quad, extent);
  }
};

struct SumInOrderBody {
  int ranks, own;
  const float* parts;
  std::int64_t stride;
  float* values;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    double sum[4] = {};
    for (int p = 0; p < ranks; ++p) {
      const Quad part = LoadQuad((p == own ? values : parts + p * stride) + at, extent);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[j] = p == 0 ? part.at[j] : sum[j] + part.at[j];
    }
    Quad rounded;
#pragma unroll
    for (int j = 0; j < 4; ++j) rounded.at[j] = static_cast<float>(sum[j]);
    StoreQuad(values + at, rounded, extent);
  }
};

struct SquareTerm {
  const float* x;

  template <typename Extent>
  __device__ double operator()(int, std::int64_t at, Extent extent) const {
    const Quad quad = LoadQuad(x + at, extent);
    double sum = 0;
    for (const float element : quad.at) sum = __fma_rn(element, element, sum);
    return sum;
  }
};

// 1 for every infinity and NaN: their exponent is all ones.
struct NotFiniteTerm {
  const float* x;

  template <typename Extent>
  __device__ double operator()(int, std::int64_t at, Extent extent) const {
    constexpr unsigned kExponent = 0x7f800000;
    const Quad quad = LoadQuad(x + at, extent);
    int count = 0;
    for (const float element : quad.at) count += (__float_as_uint(element) & kExponent) == kExponent ? 1 : 0;
    return count;
  }
};

struct StoreResult {
  double* to;

  __device__ void operator()(int, double sum) const { *to = sum; }
};

// The sum of the terms of an array, on the host.
template <typename Term>
double SumOf(std::int64_t size, const float* x, const Term& term) {
  const std::size_t partials = PartialSums(1, size);
  auto* const partial = Scratch<double>(partials + 1);
  auto* const result = partial + partials;
  SumRows(1, size, QuadsAligned(1, size, x), term, StoreResult{result}, partial);
  double sum = 0;
  spotlight::CopyOut(&sum, result, sizeof sum);
  return sum;
}

}  // namespace

void AdamWUpdate(const AdamWSettings& settings, std::int64_t step, std::int64_t size, float grad_scale,
                 const float* grad, float* weight, float* m, float* v) {
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
  Pointwise(1, size, QuadsAligned(1, size, grad, weight, m, v),
            AdamWBody{.grad_scale = grad_scale,
                      .keep = static_cast<float>(1 - settings.lr * settings.weight_decay),
                      .blend1 = static_cast<float>(1 - settings.beta1),
                      .beta2 = static_cast<float>(settings.beta2),
                      .blend2 = static_cast<float>(1 - settings.beta2),
                      .step_size = static_cast<float>(settings.lr / correction1),
                      .root_correction = static_cast<float>(std::sqrt(correction2)),
                      .eps = static_cast<float>(settings.eps),
                      .grad = grad,
                      .weight = weight,
                      .m = m,
                      .v = v});
}

double SquaredNorm(std::int64_t size, const float* x) { return SumOf(size, x, SquareTerm{x}); }

bool AllFinite(std::int64_t size, const float* x) { return SumOf(size, x, NotFiniteTerm{x}) == 0; }

void EmaUpdate(std::int64_t size, double decay, const float* weight, float* ema) {
  Pointwise(1, size, QuadsAligned(1, size, weight, ema), EmaBody{static_cast<float>(1 - decay), weight, ema});
}

void Axpy(std::int64_t size, float a, const float* x, float* y) {
  Pointwise(1, size, QuadsAligned(1, size, x, y), AxpyBody{a, x, y});
}

void Scale(std::int64_t size, float a, float* y) { Pointwise(1, size, QuadsAligned(1, size, y), ScaleBody{a, y}); }

// What lies before the first 16-byte border goes first, by itself: shards begin anywhere.
void SumInOrder(std::int64_t size, int ranks, int own, const float* parts, std::int64_t stride, float* values) {
  const auto place = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(values) / sizeof(float));
  const std::int64_t head = std::min(size, -place & 3);
  Pointwise(1, head, false, SumInOrderBody{ranks, own, parts, stride, values});
  values += head;
  parts += head;
  const bool aligned = stride % 4 == 0 && QuadsAligned(1, size, values, parts);
  Pointwise(1, size - head, aligned, SumInOrderBody{ranks, own, parts, stride, values});
}

}  // namespace spotlight::cuda
