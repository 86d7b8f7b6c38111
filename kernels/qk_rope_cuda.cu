#include <algorithm>
#include <cstdint>

#include "kernels/cuda/batch_rows.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/partial_sums.hpp"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/vectors.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kWarps = 8;  // of a block; each takes every kWarps-th head of a token
// Whose contributions to the norm weights' gradients one block adds up; where none are wanted it has one token.
constexpr int kBlockTokens = 8;
constexpr int kMostSize = kWarpSize * kVector;  // of a head: a warp holds it, kVector elements a lane

using Held = float[kVector];  // a lane's part of a head

// Where the samples of one launch are.
struct Samples {
  BatchRows text, image;
  bool of_image = false;
  int position[kMostSamples] = {};
  int heads = 0, size = 0;  // of a head
  float eps = 0;

  Samples(const QkRopeShape& shape, std::int64_t begin, std::int64_t count)
      : text(shape.text, begin, count),
        image(shape.image, begin, count),
        of_image(shape.of_image),
        heads(static_cast<int>(shape.heads)),
        size(static_cast<int>(shape.head_size)),
        eps(shape.eps) {
    SPOTLIGHT_REQUIRE(shape.head_size <= kMostSize, "a head on CUDA has at most 128 elements");
    if (shape.position != nullptr) std::copy_n(shape.position + begin, count, position);
  }
  __host__ __device__ const BatchRows& rows() const { return of_image ? image : text; }
};

// Where head 0 of a token is: of q in qkv, the others `size` further; of q in q, the others `head_stride` further.
struct TokenPlace {
  std::int64_t packed, joint, head_stride;
};
__device__ __forceinline__ TokenPlace PlaceOf(const Samples& samples, int sample, int token) {
  const int text = samples.text.first[sample + 1] - samples.text.first[sample];
  const std::int64_t tokens = text + samples.image.first[sample + 1] - samples.image.first[sample];
  const std::int64_t first = std::int64_t{samples.text.first[sample]} + samples.image.first[sample];
  const std::int64_t row = samples.rows().first[sample] + token;
  return {row * 3 * samples.heads * samples.size,
          (first * samples.heads + (samples.of_image ? text : 0) + token) * samples.size, tokens * samples.size};
}

// The angles of a lane's two pairs.
struct Rotation {
  float cos[kVector / 2], sin[kVector / 2];
};
template <bool kWide>
__device__ __forceinline__ Rotation LoadRotation(const float* cos, const float* sin, std::int64_t position, int lane,
                                                 int size) {
  Rotation rotation;
  const std::int64_t row = position * (size / 2);
  LoadValues<kWide>(cos + row, lane * (kVector / 2), size / 2, rotation.cos);
  LoadValues<kWide>(sin + row, lane * (kVector / 2), size / 2, rotation.sin);
  return rotation;
}

// 1 / sqrt(mean(x^2) + eps) of a head.
__device__ __forceinline__ float HeadRstd(const Held& x, int size, float eps) {
  float square_sum = 0;
#pragma unroll
  for (const float value : x) square_sum = fmaf(value, value, square_sum);
  return 1.0f / sqrtf(WarpSum(square_sum) / static_cast<float>(size) + eps);
}

__device__ __forceinline__ void HeadForward(Held& x, const Held& weight, const Rotation& rotation, int size,
                                            float eps) {
  const float r = HeadRstd(x, size, eps);
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    const float a = x[i] * r * weight[i], b = x[i + 1] * r * weight[i + 1];
    x[i] = fmaf(a, rotation.cos[i / 2], -(b * rotation.sin[i / 2]));
    x[i + 1] = fmaf(a, rotation.sin[i / 2], b * rotation.cos[i / 2]);
  }
}

// x becomes dx; weight_sum += the gradient of the norm's weight. With g the gradient rotated back and h = x rstd:
// dx = rstd (g w - h mean(g w h)), dw = g h.
__device__ __forceinline__ void HeadBackward(Held& x, const Held& weight, const Rotation& rotation, const Held& grad,
                                             int size, float eps, Held& weight_sum) {
  const float r = HeadRstd(x, size, eps);
  Held g;
  float gh_sum = 0;
#pragma unroll
  for (int i = 0; i < kVector; i += 2) {
    g[i] = fmaf(grad[i], rotation.cos[i / 2], grad[i + 1] * rotation.sin[i / 2]);
    g[i + 1] = fmaf(grad[i + 1], rotation.cos[i / 2], -(grad[i] * rotation.sin[i / 2]));
  }
#pragma unroll
  for (int i = 0; i < kVector; ++i) {
    x[i] *= r;
    weight_sum[i] = fmaf(g[i], x[i], weight_sum[i]);
    g[i] *= weight[i];
    gh_sum = fmaf(g[i], x[i], gh_sum);
  }
  const float gh_mean = WarpSum(gh_sum) / static_cast<float>(size);
#pragma unroll
  for (int i = 0; i < kVector; ++i) x[i] = r * fmaf(-x[i], gh_mean, g[i]);
}

// Grid: (tokens of the longest sample, samples).
template <typename T, bool kWide>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    QkRopeForwardKernel(const __grid_constant__ Samples samples, const T* __restrict__ qkv,
                        const float* __restrict__ norm_q, const float* __restrict__ norm_k,
                        const float* __restrict__ cos, const float* __restrict__ sin, T* __restrict__ q,
                        T* __restrict__ k, T* __restrict__ v) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int sample = static_cast<int>(blockIdx.y), token = static_cast<int>(blockIdx.x);
  const int size = samples.size, element = lane * kVector;
  if (token >= samples.rows().first[sample + 1] - samples.rows().first[sample]) return;
  const TokenPlace place = PlaceOf(samples, sample, token);
  const Rotation rotation = LoadRotation<kWide>(cos, sin, samples.position[sample] + token, lane, size);
  const std::int64_t part = std::int64_t{samples.heads} * size;
  Held q_weight, k_weight;
  LoadValues<kWide>(norm_q, element, size, q_weight);
  LoadValues<kWide>(norm_k, element, size, k_weight);
  for (int head = warp; head < samples.heads; head += kWarps) {
    const T* packed = qkv + place.packed + std::int64_t{head} * size;
    const std::int64_t joint = place.joint + head * place.head_stride;
    Held of_q, of_k, of_v;
    LoadValues<kWide>(packed, element, size, of_q);
    LoadValues<kWide>(packed + part, element, size, of_k);
    LoadValues<kWide>(packed + 2 * part, element, size, of_v);
    HeadForward(of_q, q_weight, rotation, size, samples.eps);
    HeadForward(of_k, k_weight, rotation, size, samples.eps);
    StoreValues<kWide>(q + joint, element, size, of_q);
    StoreValues<kWide>(k + joint, element, size, of_k);
    StoreValues<kWide>(v + joint, element, size, of_v);
  }
}

// Grid: (blocks of block_tokens tokens of the longest sample, samples). partials: rows [2, size] of q and k for each
// block; null: not wanted.
template <typename T, bool kWide>
__global__ void __launch_bounds__(kWarps* kWarpSize, 3)
    QkRopeBackwardKernel(const __grid_constant__ Samples samples, int block_tokens, const T* __restrict__ qkv,
                         const float* __restrict__ norm_q, const float* __restrict__ norm_k,
                         const float* __restrict__ cos, const float* __restrict__ sin, const T* __restrict__ dq,
                         const T* __restrict__ dk, const T* __restrict__ dv, T* __restrict__ dqkv,
                         float* __restrict__ partials) {
  __shared__ __align__(16) float sums[kWarps][2][kMostSize];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int sample = static_cast<int>(blockIdx.y), size = samples.size, element = lane * kVector;
  const int begin = static_cast<int>(blockIdx.x) * block_tokens;
  const int end = min(begin + block_tokens, samples.rows().first[sample + 1] - samples.rows().first[sample]);
  if (begin >= end) return;
  const std::int64_t part = std::int64_t{samples.heads} * size;
  Held q_weight, k_weight, q_sum = {}, k_sum = {};
  LoadValues<kWide>(norm_q, element, size, q_weight);
  LoadValues<kWide>(norm_k, element, size, k_weight);
  for (int token = begin; token < end; ++token) {
    const TokenPlace place = PlaceOf(samples, sample, token);
    const Rotation rotation = LoadRotation<kWide>(cos, sin, samples.position[sample] + token, lane, size);
    for (int head = warp; head < samples.heads; head += kWarps) {
      const std::int64_t packed = place.packed + std::int64_t{head} * size;
      const std::int64_t joint = place.joint + head * place.head_stride;
      Held of_q, of_k, q_grad, k_grad, v_grad;
      LoadValues<kWide>(qkv + packed, element, size, of_q);
      LoadValues<kWide>(qkv + packed + part, element, size, of_k);
      LoadValues<kWide>(dq + joint, element, size, q_grad);
      LoadValues<kWide>(dk + joint, element, size, k_grad);
      LoadValues<kWide>(dv + joint, element, size, v_grad);
      HeadBackward(of_q, q_weight, rotation, q_grad, size, samples.eps, q_sum);
      HeadBackward(of_k, k_weight, rotation, k_grad, size, samples.eps, k_sum);
      StoreValues<kWide>(dqkv + packed, element, size, of_q);
      StoreValues<kWide>(dqkv + packed + part, element, size, of_k);
      StoreValues<kWide>(dqkv + packed + 2 * part, element, size, v_grad);
    }
  }
  if (partials == nullptr) return;
  // Not StoreWide: that is an instruction of global memory.
  *reinterpret_cast<float4*>(&sums[warp][0][element]) = make_float4(q_sum[0], q_sum[1], q_sum[2], q_sum[3]);
  *reinterpret_cast<float4*>(&sums[warp][1][element]) = make_float4(k_sum[0], k_sum[1], k_sum[2], k_sum[3]);
  __syncthreads();
  const int of = static_cast<int>(threadIdx.x) / kMostSize, column = static_cast<int>(threadIdx.x) % kMostSize;
  if (column >= size) return;
  float sum = 0;
#pragma unroll
  for (int other = 0; other < kWarps; ++other) sum += sums[other][of][column];
  partials[((std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x) * 2 + of) * size + column] = sum;
}

}  // namespace

void QkRopeForward(const QkRopeShape& shape, ConstActivations qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, Activations q, Activations k, Activations v) {
  const bool wide = CanBeWide(shape.head_size, qkv.data, norm_q, norm_k, cos, sin, q.data, k.data, v.data);
  WithElements(qkv.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(shape.text.batch, [&](std::int64_t begin, std::int64_t count) {
      const Samples samples(shape, begin, count);
      Launch(QkRopeForwardKernel<T, kWide>, dim3(samples.rows().most_tokens, count), kWarps * kWarpSize, 0, samples,
             qkv.As<T>(), norm_q, norm_k, cos, sin, q.As<T>(), k.As<T>(), v.As<T>());
    });
  });
}

void QkRopeBackward(const QkRopeShape& shape, ConstActivations qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, ConstActivations dq, ConstActivations dk, ConstActivations dv,
                    Activations dqkv, float* dnorm_q, float* dnorm_k) {
  const bool wide =
      CanBeWide(shape.head_size, qkv.data, norm_q, norm_k, cos, sin, dq.data, dk.data, dv.data, dqkv.data);
  const bool want_sums = dnorm_q != nullptr || dnorm_k != nullptr;
  const int block_tokens = want_sums ? kBlockTokens : 1;
  const std::int64_t stride = 2 * shape.head_size;
  WithElements(qkv.type, wide, [&]<typename T, bool kWide>() {
    ForEachChunk(shape.text.batch, [&](std::int64_t begin, std::int64_t count) {
      const Samples samples(shape, begin, count);
      const int blocks = (samples.rows().most_tokens + block_tokens - 1) / block_tokens;
      float* partials = want_sums ? Scratch<float>(static_cast<std::size_t>(count * blocks * stride)) : nullptr;
      Launch(QkRopeBackwardKernel<T, kWide>, dim3(blocks, count), kWarps * kWarpSize, 0, samples, block_tokens,
             qkv.As<T>(), norm_q, norm_k, cos, sin, dq.As<T>(), dk.As<T>(), dv.As<T>(), dqkv.As<T>(), partials);
      if (!want_sums) return;
      AddPartialSums(samples.rows(), block_tokens, blocks, shape.head_size, partials, stride,
                     {ModulationGradient{.data = dnorm_q}, begin, count});
      AddPartialSums(samples.rows(), block_tokens, blocks, shape.head_size, partials + shape.head_size, stride,
                     {ModulationGradient{.data = dnorm_k}, begin, count});
    });
  });
}

}  // namespace spotlight::cuda
