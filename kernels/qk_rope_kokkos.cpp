#include "kernels/qk_rope.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/parallel.hpp"
#include "kernels/partial_sums.hpp"

namespace spotlight {
namespace {

// 1 / sqrt(mean(x^2) + eps) of one head.
inline float HeadRstd(std::int64_t size, float eps, const float* x) {
  const float square_sum = LaneSum(size, [=](std::int64_t i) { return x[i] * x[i]; });
  return 1.0f / std::sqrt(square_sum / static_cast<float>(size) + eps);
}

inline void HeadForward(std::int64_t size, float eps, const float* __restrict x, const float* __restrict weight,
                        const float* __restrict cos, const float* __restrict sin, float* __restrict out) {
  const float r = HeadRstd(size, eps, x);
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const float a = x[2 * i] * r * weight[2 * i];
    const float b = x[2 * i + 1] * r * weight[2 * i + 1];
    out[2 * i] = a * cos[i] - b * sin[i];
    out[2 * i + 1] = a * sin[i] + b * cos[i];
  }
}

// dx of one head (overwritten) from the gradient of its output; dweight_sum += (null: not wanted).
// With g the rotated-back gradient and h = x rstd: dx = rstd (g w - h mean(g w h)), dw = g h.
inline void HeadBackward(std::int64_t size, float eps, const float* __restrict x, const float* __restrict weight,
                         const float* __restrict cos, const float* __restrict sin, const float* __restrict dout,
                         float* __restrict dx, float* __restrict dweight_sum) {
  const float r = HeadRstd(size, eps, x);
  for (std::int64_t i = 0; i < size / 2; ++i) {
    const float a = dout[2 * i];
    const float b = dout[2 * i + 1];
    dx[2 * i] = a * cos[i] + b * sin[i];
    dx[2 * i + 1] = b * cos[i] - a * sin[i];
  }
  if (dweight_sum != nullptr) {
    for (std::int64_t i = 0; i < size; ++i) dweight_sum[i] += dx[i] * (x[i] * r);
  }
  const float gh_mean =
      LaneSum(size, [=](std::int64_t i) { return dx[i] * weight[i] * (x[i] * r); }) / static_cast<float>(size);
  for (std::int64_t i = 0; i < size; ++i) dx[i] = r * (dx[i] * weight[i] - x[i] * r * gh_mean);
}

}  // namespace

void QkRopeForward(const QkRopeShape& shape, const float* qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, float* q, float* k, float* v) {
  ParallelFor("QkRopeForward", shape.batch * shape.tokens, [=](std::int64_t item) {
    const std::int64_t size = shape.head_size;
    const std::int64_t sample = item / shape.tokens;
    const std::int64_t token = item % shape.tokens;
    const float* row = qkv + item * 3 * shape.heads * size;
    const float* token_cos = cos + token * (size / 2);
    const float* token_sin = sin + token * (size / 2);
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t target = ((sample * shape.heads + head) * shape.joint_tokens + shape.first + token) * size;
      const float* in = row + head * size;
      HeadForward(size, shape.eps, in, norm_q, token_cos, token_sin, q + target);
      HeadForward(size, shape.eps, in + shape.heads * size, norm_k, token_cos, token_sin, k + target);
      std::copy_n(in + 2 * shape.heads * size, size, v + target);
    }
  });
}

void QkRopeBackward(const QkRopeShape& shape, const float* qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, const float* dq, const float* dk, const float* dv, float* dqkv,
                    float* dnorm_q, float* dnorm_k) {
  const std::int64_t blocks = TokenBlocks(shape.tokens);
  const bool want_sums = dnorm_q != nullptr || dnorm_k != nullptr;
  float* partials = want_sums ? PartialSumScratch(shape.batch * blocks * 2 * shape.head_size) : nullptr;
  ParallelFor("QkRopeBackward", shape.batch * blocks, [=](std::int64_t item) {
    const std::int64_t size = shape.head_size;
    const std::int64_t sample = item / blocks;
    const std::int64_t first = item % blocks * kTokenBlock;
    float* q_sum = want_sums ? partials + item * 2 * size : nullptr;
    float* k_sum = want_sums ? q_sum + size : nullptr;
    if (want_sums) std::fill_n(q_sum, 2 * size, 0.0f);
    for (std::int64_t token = first; token < std::min(shape.tokens, first + kTokenBlock); ++token) {
      const std::int64_t row = (sample * shape.tokens + token) * 3 * shape.heads * size;
      const float* token_cos = cos + token * (size / 2);
      const float* token_sin = sin + token * (size / 2);
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t source = ((sample * shape.heads + head) * shape.joint_tokens + shape.first + token) * size;
        const std::int64_t at_q = row + head * size;
        const std::int64_t at_k = at_q + shape.heads * size;
        const std::int64_t at_v = at_k + shape.heads * size;
        HeadBackward(size, shape.eps, qkv + at_q, norm_q, token_cos, token_sin, dq + source, dqkv + at_q, q_sum);
        HeadBackward(size, shape.eps, qkv + at_k, norm_k, token_cos, token_sin, dk + source, dqkv + at_k, k_sum);
        std::copy_n(dv + source, size, dqkv + at_v);
      }
    }
  });
  if (!want_sums) return;
  const std::int64_t stride = 2 * shape.head_size;
  AddPartialSums(shape.batch, blocks, shape.head_size, partials, stride, {.data = dnorm_q});
  AddPartialSums(shape.batch, blocks, shape.head_size, partials + shape.head_size, stride, {.data = dnorm_k});
}

}  // namespace spotlight
