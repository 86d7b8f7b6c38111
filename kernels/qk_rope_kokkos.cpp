#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/lanes.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"
#include "kernels/partial_sums.hpp"

namespace spotlight::kokkos {
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

inline const TokenRows& RowsOf(const QkRopeShape& shape) { return shape.of_image ? shape.image : shape.text; }

inline std::int64_t PositionOf(const QkRopeShape& shape, std::int64_t sample) {
  return shape.position == nullptr ? 0 : shape.position[sample];
}

// Rows of the rope table that are read: up to the last position of any sample.
std::int64_t Positions(const QkRopeShape& shape) {
  const TokenRows& rows = RowsOf(shape);
  std::int64_t end = 0;
  for (std::int64_t b = 0; b < rows.batch; ++b) end = std::max(end, PositionOf(shape, b) + rows.tokens(b));
  return end;
}

// Rotation table [P, 2, D] in the order of the elements, so that the loops over a head read it without
// shuffles: the cosine of each element, then what its pair partner is multiplied by: -sin, +sin.
void FillRotation(std::int64_t positions, std::int64_t size, const float* cos, const float* sin, float* table) {
  ParallelFor("FillRotation", positions, [=](std::int64_t position) {
    float* cosine = table + position * 2 * size;
    float* partner = cosine + size;
    for (std::int64_t i = 0; i < size / 2; ++i) {
      const std::int64_t angle = position * (size / 2) + i;
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

// Calls body(position, where q's head starts in qkv, where it starts in q) for block `item` of tokens of all samples.
template <typename Body>
inline void ForEachHead(const QkRopeShape& shape, std::int64_t blocks, std::int64_t item, const Body& body) {
  const TokenRows& rows = RowsOf(shape);
  const std::int64_t sample = item / blocks;
  const std::int64_t tokens = rows.tokens(sample);
  const std::int64_t begin = item % blocks * kTokenBlock;
  const std::int64_t end = std::min(tokens, begin + kTokenBlock);
  const std::int64_t text = shape.text.tokens(sample);
  const std::int64_t joint_tokens = text + shape.image.tokens(sample);
  const std::int64_t joint_first = (shape.text.first[sample] + shape.image.first[sample]) * shape.heads;
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t packed_head = (rows.first[sample] + token) * 3 * shape.heads + head;
      const std::int64_t joint_row = joint_first + head * joint_tokens + (shape.of_image ? text : 0) + token;
      body(PositionOf(shape, sample) + token, packed_head * shape.head_size, joint_row * shape.head_size);
    }
  }
}

}  // namespace

void QkRopeForward(const QkRopeShape& shape, ConstActivations packed_qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, Activations queries, Activations keys, Activations values) {
  const float* qkv = packed_qkv.As<float>();
  float *q = queries.As<float>(), *k = keys.As<float>(), *v = values.As<float>();
  const std::int64_t blocks = TokenBlocks(RowsOf(shape).most_tokens()), positions = Positions(shape);
  float* table = KernelScratch(positions * 2 * shape.head_size);
  FillRotation(positions, shape.head_size, cos, sin, table);
  ParallelFor("QkRopeForward", shape.text.batch * blocks, [=](std::int64_t item) {
    const std::int64_t part = shape.heads * shape.head_size;
    WithHeadSize(shape.head_size, [=](auto size) {
      ForEachHead(shape, blocks, item, [=](std::int64_t position, std::int64_t packed, std::int64_t joint) {
        const float* rotation = table + position * 2 * size;
        HeadForward(size, shape.eps, qkv + packed, norm_q, rotation, q + joint);
        HeadForward(size, shape.eps, qkv + packed + part, norm_k, rotation, k + joint);
        std::copy_n(qkv + packed + 2 * part, std::int64_t{size}, v + joint);
      });
    });
  });
}

void QkRopeBackward(const QkRopeShape& shape, ConstActivations packed_qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, ConstActivations dqueries, ConstActivations dkeys,
                    ConstActivations dvalues, Activations dpacked_qkv, float* dnorm_q, float* dnorm_k) {
  const float *qkv = packed_qkv.As<float>(), *dq = dqueries.As<float>(), *dk = dkeys.As<float>();
  const float* dv = dvalues.As<float>();
  float* dqkv = dpacked_qkv.As<float>();
  const std::int64_t batch = shape.text.batch;
  const std::int64_t blocks = TokenBlocks(RowsOf(shape).most_tokens()), positions = Positions(shape);
  const bool want_sums = dnorm_q != nullptr || dnorm_k != nullptr;
  const std::int64_t table_size = positions * 2 * shape.head_size;
  float* table = KernelScratch(table_size + batch * blocks * 2 * shape.head_size);
  float* partials = table + table_size;
  FillRotation(positions, shape.head_size, cos, sin, table);
  ParallelFor("QkRopeBackward", batch * blocks, [=](std::int64_t item) {
    const std::int64_t part = shape.heads * shape.head_size;
    float* q_sum = want_sums ? partials + item * 2 * shape.head_size : nullptr;
    float* k_sum = want_sums ? q_sum + shape.head_size : nullptr;
    if (want_sums) std::fill_n(q_sum, 2 * shape.head_size, 0.0f);
    WithHeadSize(shape.head_size, [=](auto size) {
      ForEachHead(shape, blocks, item, [=](std::int64_t position, std::int64_t packed, std::int64_t joint) {
        const float* rotation = table + position * 2 * size;
        HeadBackward(size, shape.eps, qkv + packed, norm_q, rotation, dq + joint, dqkv + packed, q_sum);
        HeadBackward(size, shape.eps, qkv + packed + part, norm_k, rotation, dk + joint, dqkv + packed + part, k_sum);
        std::copy_n(dv + joint, std::int64_t{size}, dqkv + packed + 2 * part);
      });
    });
  });
  if (!want_sums) return;
  const std::int64_t stride = 2 * shape.head_size;
  AddPartialSums(batch, blocks, shape.head_size, partials, stride, {.data = dnorm_q});
  AddPartialSums(batch, blocks, shape.head_size, partials + shape.head_size, stride, {.data = dnorm_k});
}

}  // namespace spotlight::kokkos
