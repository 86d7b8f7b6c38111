// Guidance on CUDA devices (kernels/guidance.hpp has the equation). 16 lanes share a token: the 64 channels of
// Qwen-Image are one quad a lane. Norms and products are fp32 sums: a lane's quads in ascending order, then a tree over
// the lanes.
#include <cmath>

#include "kernels/cuda/quads.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kLanes = 16;
constexpr int kThreads = 256;
constexpr int kTokensPerBlock = kThreads / kLanes;

// What the kernels take; one token a group of lanes.
struct Pairs {
  std::int64_t tokens;  // of all samples
  std::int64_t size;    // of a sample's velocity
  int channels;
  float scale;
  const float* velocities;  // [B, 2, size]
};

// Of the token that the calling thread works on. A thread beyond the last token has no channels, but takes part in the
// sums of its warp.
struct Token {
  std::int64_t at, pair;  // of its first channel in [B, size], and of the conditional one in [B, 2, size]
  int channels;

  __device__ explicit Token(const Pairs& pairs) {
    const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * kTokensPerBlock + threadIdx.x / kLanes;
    channels = token < pairs.tokens ? pairs.channels : 0;
    at = token * pairs.channels;
    pair = at + at / pairs.size * pairs.size;  // each earlier sample has a second velocity
  }
};

__device__ __forceinline__ int Lane() { return static_cast<int>(threadIdx.x) % kLanes; }

__device__ __forceinline__ float SumOverLanes(float value) {
  for (int other = kLanes / 2; other > 0; other /= 2) value += __shfl_xor_sync(~0u, value, other);
  return value;
}

__device__ __forceinline__ Quad Guided(float scale, const Quad& conditional, const Quad& unconditional) {
  Quad guided;
  for (int j = 0; j < 4; ++j) {
    guided.at[j] = __fmaf_rn(scale, conditional.at[j] - unconditional.at[j], unconditional.at[j]);
  }
  return guided;
}

// sum + a . b.
__device__ __forceinline__ float AddProducts(float sum, const Quad& a, const Quad& b) {
  for (int j = 0; j < 4; ++j) sum = __fmaf_rn(a.at[j], b.at[j], sum);
  return sum;
}

template <bool kAligned>
__global__ void __launch_bounds__(kThreads) GuidanceForwardKernel(Pairs pairs, float* v) {
  const Token token(pairs);
  const float* const conditional = pairs.velocities + token.pair;
  const float* const unconditional = conditional + pairs.size;
  float square = 0, guided_square = 0;
  ForQuads<kAligned>(Lane(), kLanes, token.channels, [&](int j, auto extent) {
    const Quad c = LoadQuad(conditional + j, extent);
    const Quad u = Guided(pairs.scale, c, LoadQuad(unconditional + j, extent));
    square = AddProducts(square, c, c);
    guided_square = AddProducts(guided_square, u, u);
  });
  const float norm = std::sqrt(SumOverLanes(square)), guided_norm = std::sqrt(SumOverLanes(guided_square));
  const float ratio = norm / guided_norm;
  ForQuads<kAligned>(Lane(), kLanes, token.channels, [&](int j, auto extent) {
    Quad u = Guided(pairs.scale, LoadQuad(conditional + j, extent), LoadQuad(unconditional + j, extent));
    for (float& element : u.at) element *= ratio;
    StoreQuad(v + token.at + j, u, extent);
  });
}

// v = u |c| / |u|, p = dv . u:  du = (|c| / |u|) (dv - u p / |u|^2),  dc = s du + c p / (|c| |u|),  dn = (1 - s) du.
template <bool kAligned>
// At least 2 blocks: left alone, ptxas aims at more on sm_100 and spills.
__global__ void __launch_bounds__(kThreads, 2) GuidanceBackwardKernel(Pairs pairs, const float* dv, float* dpairs) {
  const Token token(pairs);
  const float* const conditional = pairs.velocities + token.pair;
  const float* const unconditional = conditional + pairs.size;
  const float* const gradient = dv + token.at;
  float square = 0, guided_square = 0, along = 0;
  ForQuads<kAligned>(Lane(), kLanes, token.channels, [&](int j, auto extent) {
    const Quad c = LoadQuad(conditional + j, extent);
    const Quad u = Guided(pairs.scale, c, LoadQuad(unconditional + j, extent));
    square = AddProducts(square, c, c);
    guided_square = AddProducts(guided_square, u, u);
    along = AddProducts(along, LoadQuad(gradient + j, extent), u);
  });
  const float norm = std::sqrt(SumOverLanes(square)), guided_norm = std::sqrt(SumOverLanes(guided_square));
  const float product = SumOverLanes(along);
  const float ratio = norm / guided_norm;
  const float along_u = product / guided_norm / guided_norm, along_c = product / guided_norm / norm;
  float* const dconditional = dpairs + token.pair;
  float* const dunconditional = dconditional + pairs.size;
  ForQuads<kAligned>(Lane(), kLanes, token.channels, [&](int j, auto extent) {
    const Quad c = LoadQuad(conditional + j, extent), g = LoadQuad(gradient + j, extent);
    const Quad u = Guided(pairs.scale, c, LoadQuad(unconditional + j, extent));
    Quad dc, dn;
    for (int k = 0; k < 4; ++k) {
      const float du = ratio * __fmaf_rn(-u.at[k], along_u, g.at[k]);
      dc.at[k] = __fmaf_rn(pairs.scale, du, __fmul_rn(c.at[k], along_c));
      dn.at[k] = (1.0f - pairs.scale) * du;
    }
    StoreQuad(dconditional + j, dc, extent);
    StoreQuad(dunconditional + j, dn, extent);
  });
}

Pairs PairsOf(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs) {
  return {batch * size / channels, size, static_cast<int>(channels), scale, pairs};
}

}  // namespace

void GuidanceForward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                     float* v) {
  const Pairs all = PairsOf(batch, size, channels, scale, pairs);
  const bool aligned = channels % 4 == 0 && QuadsAligned(batch, size, pairs, v);
  Launch(aligned ? GuidanceForwardKernel<true> : GuidanceForwardKernel<false>, BlocksFor(all.tokens, kTokensPerBlock),
         kThreads, 0, all, v);
}

void GuidanceBackward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                      const float* dv, float* dpairs) {
  const Pairs all = PairsOf(batch, size, channels, scale, pairs);
  const bool aligned = channels % 4 == 0 && QuadsAligned(batch, size, pairs, dv, dpairs);
  Launch(aligned ? GuidanceBackwardKernel<true> : GuidanceBackwardKernel<false>, BlocksFor(all.tokens, kTokensPerBlock),
         kThreads, 0, all, dv, dpairs);
}

}  // namespace spotlight::cuda
