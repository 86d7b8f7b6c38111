#include <array>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/vectors.cuh"
#include "kernels/operations_cuda.hpp"
#include "kernels/time_frequencies.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = INT32_MAX;

// GELU_tanh(z) = z sigmoid(2u), u = sqrt(2/pi) (z + 0.044715 z^3), since (1 + tanh u)/2 = sigmoid(2u):
// no cancellation for negative z, and one exponential.
constexpr float kTwoRootTwoOverPi = 1.5957691216057308f;
constexpr float kCubic = 0.044715f;

// e^x: to fp32 rounding for fp32 results, by the hardware's 2^x for bfloat16 ones.
template <typename T>
__device__ __forceinline__ float Exp(float x) {
  if constexpr (kElementOf<T> == ElementType::kFp32) return expf(x);
  return __expf(x);
}

template <typename T>
__device__ __forceinline__ float Sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + Exp<T>(-x));  // 0 where e^-x is beyond 2^126
}

template <typename T>
struct Gelu {
  __device__ __forceinline__ float operator()(float z) const {
    return z * Sigmoid<T>(kTwoRootTwoOverPi * fmaf(kCubic * z * z, z, z));
  }
};

// s + z s (1 - s) slope with s = sigmoid(u) and e = e^-|u|: s (1 - s) = e / (1 + e)^2 is even in u, and formed without
// cancellation. z is clamped to where the sigmoid is 0 or 1 in fp32, so that 0 * inf does not occur.
template <typename T>
__device__ __forceinline__ float SigmoidProductDerivative(float z, float u, float slope) {
  const float e = Exp<T>(-fabsf(u));
  const float r = __fdividef(1.0f, 1.0f + e);
  return fmaf(z * slope, e * r * r, u < 0 ? e * r : r);
}

template <typename T>
struct GeluDerivative {
  __device__ __forceinline__ float operator()(float z) const {
    const float c = fminf(fmaxf(z, -16.0f), 16.0f);
    const float square = c * c;
    return SigmoidProductDerivative<T>(c, kTwoRootTwoOverPi * fmaf(kCubic * square, c, c),
                                       kTwoRootTwoOverPi * fmaf(3 * kCubic, square, 1.0f));
  }
};

struct Silu {
  __device__ __forceinline__ float operator()(float z) const { return z * Sigmoid<float>(z); }
};

struct SiluDerivative {
  __device__ __forceinline__ float operator()(float z) const {
    const float c = fminf(fmaxf(z, -120.0f), 120.0f);
    return SigmoidProductDerivative<float>(c, c, 1.0f);
  }
};

// The elements of one 16-byte word.
template <typename T>
inline constexpr int kPerThread = 16 / sizeof(T);

// y[i] = function(x[i]). Each thread has the elements of a word.
template <typename Function, typename T, bool kWide>
__global__ void __launch_bounds__(kThreads) MapKernel(std::int64_t size, const T* x, T* y) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPerThread<T>;
  if (first >= size) return;
  const int left = static_cast<int>(min(size - first, std::int64_t{kPerThread<T>}));
  float values[kPerThread<T>];
  LoadValues<kWide>(x + first, 0, left, values);
#pragma unroll
  for (float& value : values) value = Function()(value);
  StoreValues<kWide>(y + first, 0, left, values);
}

// dx[i] = dy[i] slope(x[i]), added to dx[i] if kAdd.
template <typename Slope, typename T, bool kWide, bool kAdd>
__global__ void __launch_bounds__(kThreads) MapBackwardKernel(std::int64_t size, const T* x, const T* dy, T* dx) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPerThread<T>;
  if (first >= size) return;
  const int left = static_cast<int>(min(size - first, std::int64_t{kPerThread<T>}));
  float values[kPerThread<T>], grad[kPerThread<T>], start[kPerThread<T>] = {};
  LoadValues<kWide>(x + first, 0, left, values);
  LoadValues<kWide>(dy + first, 0, left, grad);
  if constexpr (kAdd) LoadValues<kWide>(dx + first, 0, left, start);
#pragma unroll
  for (int i = 0; i < kPerThread<T>; ++i) values[i] = fmaf(grad[i], Slope()(values[i]), start[i]);
  StoreValues<kWide>(dx + first, 0, left, values);
}

template <typename T>
unsigned Blocks(std::int64_t size) {
  const std::int64_t per_block = kThreads * kPerThread<T>, blocks = (size + per_block - 1) / per_block;
  SPOTLIGHT_REQUIRE(blocks <= kMostBlocks, "too many elements for one launch");
  return static_cast<unsigned>(blocks);
}

struct Frequencies {
  float values[kTimeFrequencies];
};

// Grid: rows; a thread has a frequency.
__global__ void __launch_bounds__(kTimeFrequencies)
    TimeSinusoidKernel(const float* t, const __grid_constant__ Frequencies frequencies, float* e) {
  const int j = static_cast<int>(threadIdx.x);
  const float angle = __fmul_rn(1000.0f, __fmul_rn(t[blockIdx.x], frequencies.values[j]));
  float* row = e + std::int64_t{blockIdx.x} * 2 * kTimeFrequencies;
  row[j] = static_cast<float>(cos(static_cast<double>(angle)));
  row[kTimeFrequencies + j] = static_cast<float>(sin(static_cast<double>(angle)));
}

}  // namespace

void GeluForward(std::int64_t size, ConstActivations x, Activations y) {
  WithElements(y.type, CanBeWide<8>(size, x.data, y.data), [&]<typename T, bool kWide>() {
    Launch(MapKernel<Gelu<T>, T, kWide>, Blocks<T>(size), kThreads, 0, size, x.As<T>(), y.As<T>());
  });
}

void GeluBackward(std::int64_t size, ConstActivations x, ConstActivations dy, Activations dx) {
  WithElements(dx.type, CanBeWide<8>(size, x.data, dy.data, dx.data), [&]<typename T, bool kWide>() {
    Launch(MapBackwardKernel<GeluDerivative<T>, T, kWide, false>, Blocks<T>(size), kThreads, 0, size, x.As<T>(),
           dy.As<T>(), dx.As<T>());
  });
}

void SiluForward(std::int64_t size, const float* x, float* y) {
  const auto kernel = CanBeWide(size, x, y) ? MapKernel<Silu, float, true> : MapKernel<Silu, float, false>;
  Launch(kernel, Blocks<float>(size), kThreads, 0, size, x, y);
}

void SiluBackward(std::int64_t size, const float* x, const float* dy, float* dx) {
  const auto kernel = CanBeWide(size, x, dy, dx) ? MapBackwardKernel<SiluDerivative, float, true, true>
                                                 : MapBackwardKernel<SiluDerivative, float, false, true>;
  Launch(kernel, Blocks<float>(size), kThreads, 0, size, x, dy, dx);
}

void TimeSinusoid(std::int64_t rows, const float* t, float* e) {
  Frequencies frequencies;
  const auto values = TimeFrequencies();
  std::copy(values.begin(), values.end(), frequencies.values);
  Launch(TimeSinusoidKernel, static_cast<unsigned>(rows), kTimeFrequencies, 0, t, frequencies, e);
}

}  // namespace spotlight::cuda
