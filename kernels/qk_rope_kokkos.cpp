#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/lanes.hpp"
#include "kernels/parallel.hpp"
#include "kernels/partial_sums.hpp"
#include "kernels/qk_rope.hpp"

namespace spotlight {
namespace {

// Calls body(head size), as a constant for the sizes of the models at hand: their loops then run without prologues and
// tails, the backward in 4/5 of the time.
template <typename Body>
void WithHeadSize(std::int64_t size, const Body& body) {
  if (size == 24) return body(std::integral_constant<std::int64_t, 24>());
  if (size == 128) return body(std::integral_constant<std::int64_t, 128>());
  body(size);
}

// 1 / sqrt(mean(x^2) + eps) of one head.
inline float HeadRstd(std::int64_t size, float eps, const float* x) {
  const float square_sum = LaneSum(size, [=](std::int64_t i) { return x[i] * x[i]; });
  return 1.0f / std::sqrt(square_sum / static_cast<float>(size) + eps);
}

// Rotation table [N, 2, D] in the order of the elements, so that the loops over a head read it without
// shuffles: the cosine of each element, then what its pair partner is multiplied by: -sin, +sin.
void FillRotation(const QkRopeShape& shape, const float* cos, const float* sin, float* table) {
  const std::int64_t size = shape.head_size;
  ParallelFor("FillRotation", shape.tokens, [=](std::int64_t token) {
    float* cosine = table + token * 2 * size;
    float* partner = cosine + size;
    for (std::int64_t i = 0; i < size / 2; ++i) {
      const std::int64_t angle = token * (size / 2) + i;
      cosine[2 * i] = cosine[2 * i + 1] = cos[angle];
      partner[2 * i] = -sin[angle];
      partner[2 * i + 1] = sin[angle];
    }
  });
}

template <typename Size>
inline void HeadForward(Size size, float eps, const float* __restrict x, const float* __restrict weight,
                        const float* __restrict rotation, float* __restrict out) {
  const float r = HeadRstd(size, eps, x);
  const float* __restrict partner = rotation + size;
  for (std::int64_t i = 0; i < size; i += 2) {
    const float a = x[i] * r * weight[i];
    const float b = x[i + 1] * r * weight[i + 1];
    out[i] = a * rotation[i] + b * partner[i];
    out[i + 1] = b * rotation[i + 1] + a * partner[i + 1];
  }
}

// dx of one head (overwritten) from the gradient of its output; dweight_sum += (null: not wanted).
// With g the rotated-back gradient and h = x rstd: dx = rstd (g w - h mean(g w h)), dw = g h.
template <typename Size>
inline void HeadBackward(Size size, float eps, const float* __restrict x, const float* __restrict weight,
                         const float* __restrict rotation, const float* __restrict dout, float* __restrict dx,
                         float* __restrict dweight_sum) {
  const float r = HeadRstd(size, eps, x);
  const float* __restrict partner = rotation + size;
  for (std::int64_t i = 0; i < size; i += 2) {
    dx[i] = dout[i] * rotation[i] - dout[i + 1] * partner[i];
    dx[i + 1] = dout[i + 1] * rotation[i + 1] - dout[i] * partner[i + 1];
  }
  if (dweight_sum != nullptr) {
    for (std::int64_t i = 0; i < size; ++i) dweight_sum[i] += dx[i] * (x[i] * r);
  }
  const float gh_mean =
      LaneSum(size, [=](std::int64_t i) { return dx[i] * weight[i] * (x[i] * r); }) / static_cast<float>(size);
  for (std::int64_t i = 0; i < size; ++i) dx[i] = r * (dx[i] * weight[i] - x[i] * r * gh_mean);
}

// Calls body(token, where q's head starts in qkv, where it starts in q) for block `item` of tokens of all samples.
template <typename Body>
inline void ForEachHead(const QkRopeShape& shape, std::int64_t item, const Body& body) {
  const std::int64_t blocks = TokenBlocks(shape.tokens);
  const std::int64_t sample = item / blocks;
  const std::int64_t begin = item % blocks * kTokenBlock;
  const std::int64_t end = std::min(shape.tokens, begin + kTokenBlock);
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t packed_head = (sample * shape.tokens + token) * 3 * shape.heads + head;
      const std::int64_t joint_row = (sample * shape.heads + head) * shape.joint_tokens + shape.first + token;
      body(token, packed_head * shape.head_size, joint_row * shape.head_size);
    }
  }
}

}  // namespace

void QkRopeForward(const QkRopeShape& shape, const float* qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, float* q, float* k, float* v) {
  float* table = KernelScratch(shape.tokens * 2 * shape.head_size);
  FillRotation(shape, cos, sin, table);
  ParallelFor("QkRopeForward", shape.batch * TokenBlocks(shape.tokens), [=](std::int64_t item) {
    const std::int64_t part = shape.heads * shape.head_size;
    WithHeadSize(shape.head_size, [=](auto size) {
      ForEachHead(shape, item, [=](std::int64_t token, std::int64_t packed, std::int64_t joint) {
        const float* rotation = table + token * 2 * size;
        HeadForward(size, shape.eps, qkv + packed, norm_q, rotation, q + joint);
        HeadForward(size, shape.eps, qkv + packed + part, norm_k, rotation, k + joint);
        std::copy_n(qkv + packed + 2 * part, std::int64_t{size}, v + joint);
      });
    });
  });
}

void QkRopeBackward(const QkRopeShape& shape, const float* qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, const float* dq, const float* dk, const float* dv, float* dqkv,
                    float* dnorm_q, float* dnorm_k) {
  const std::int64_t blocks = TokenBlocks(shape.tokens);
  const bool want_sums = dnorm_q != nullptr || dnorm_k != nullptr;
  const std::int64_t table_size = shape.tokens * 2 * shape.head_size;
  float* table = KernelScratch(table_size + shape.batch * blocks * 2 * shape.head_size);
  float* partials = table + table_size;
  FillRotation(shape, cos, sin, table);
  ParallelFor("QkRopeBackward", shape.batch * blocks, [=](std::int64_t item) {
    const std::int64_t part = shape.heads * shape.head_size;
    float* q_sum = want_sums ? partials + item * 2 * shape.head_size : nullptr;
    float* k_sum = want_sums ? q_sum + shape.head_size : nullptr;
    if (want_sums) std::fill_n(q_sum, 2 * shape.head_size, 0.0f);
    WithHeadSize(shape.head_size, [=](auto size) {
      ForEachHead(shape, item, [=](std::int64_t token, std::int64_t packed, std::int64_t joint) {
        const float* rotation = table + token * 2 * size;
        HeadBackward(size, shape.eps, qkv + packed, norm_q, rotation, dq + joint, dqkv + packed, q_sum);
        HeadBackward(size, shape.eps, qkv + packed + part, norm_k, rotation, dk + joint, dqkv + packed + part, k_sum);
        std::copy_n(dv + joint, std::int64_t{size}, dqkv + packed + 2 * part);
      });
    });
  });
  if (!want_sums) return;
  const std::int64_t stride = 2 * shape.head_size;
  AddPartialSums(shape.batch, blocks, shape.head_size, partials, stride, {.data = dnorm_q});
  AddPartialSums(shape.batch, blocks, shape.head_size, partials + shape.head_size, stride, {.data = dnorm_k});
}

}  // namespace spotlight
