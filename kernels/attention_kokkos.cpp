// Streaming softmax attention on the CPU (kernels/attention.hpp), after FlashAttention (Dao et al., arXiv:2205.14135).
//
// A block of queries is laid out as lanes: scores are kept transposed, [keys, queries], so that maxima, sums and
// exponentials of the softmax run down the rows with no sum across a vector, and key and value rows are read where
// they lie. For a block of queries Q (scaled by 1/sqrt(D)) and a block of keys K:
//
//   forward    S^T = K Q^T,  P = exp(S - max),  O^T += V^T P^T,  lse = max + log(sum of P)
//   backward   P = exp(S - lse),  dS = P (dO V^T - delta),  delta = rows of dO . O
//              dV += P^T dO,  dK += dS^T Q,  dQ += dS K / sqrt(D)
//
// Masked keys are left out of K and V before the loop, so a result depends on the visible keys only, not on how many
// masked ones lie between them. Every element is summed by one work item in the order of the keys (O, dQ) or of the
// queries (dK, dV). Work items: forward, a (sample, head, kItemQueries queries); backward, a (sample, head).
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "kernels/buffer.hpp"
#include "kernels/lane_product.hpp"
#include "kernels/lanes.hpp"
#include "kernels/math.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

constexpr std::int64_t kQueryBlock = 64;
constexpr std::int64_t kKeyBlock = 128;
constexpr std::int64_t kItemQueries = 4 * kQueryBlock;

std::int64_t RoundUpToLanes(std::int64_t size) { return (size + 7) / 8 * 8; }

// A thread's working memory, handed out in 64-byte aligned pieces; it grows to the largest size asked for.
class Scratch {
 public:
  explicit Scratch(std::int64_t size) {
    thread_local Buffer memory;
    if (memory.size() < size) memory.Resize(size);
    next_ = memory.data();
  }
  float* Take(std::int64_t size) {
    float* piece = next_;
    next_ += (size + 15) / 16 * 16;
    return piece;
  }

 private:
  float* next_;
};

// One head of one sample.
struct Head {
  std::int64_t sample, index;
  std::int64_t text, tokens;       // T and N of the sample
  std::int64_t row;                // of the head's first token in attention layout
  std::int64_t size, padded_size;  // D, and D rounded up to lanes
  float scale;                     // 1 / sqrt(D)
};

Head HeadOf(const AttentionShape& shape, std::int64_t item) {
  const std::int64_t sample = item / shape.heads, index = item % shape.heads;
  const std::int64_t text = shape.text.tokens(sample), tokens = text + shape.image.tokens(sample);
  return {.sample = sample,
          .index = index,
          .text = text,
          .tokens = tokens,
          .row = (shape.text.first[sample] + shape.image.first[sample]) * shape.heads + index * tokens,
          .size = shape.head_size,
          .padded_size = RoundUpToLanes(shape.head_size),
          .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_size))};
}

// Where a token's part of this head lies in an output [rows of its stream, H*D].
template <typename Float>
Float* OutputRow(const AttentionShape& shape, const Head& head, std::int64_t token, Float* text, Float* image) {
  const std::int64_t width = shape.heads * shape.head_size;
  const std::int64_t column = head.index * shape.head_size;
  if (token < head.text) return text + (shape.text.first[head.sample] + token) * width + column;
  return image + (shape.image.first[head.sample] + token - head.text) * width + column;
}

// The keys that queries may see, in order.
struct VisibleKeys {
  const float* k;
  const float* v;
  std::int64_t count;
};

bool AnyMasked(const AttentionShape& shape, const Head& head, const std::uint8_t* text_mask) {
  if (text_mask == nullptr) return false;
  const std::uint8_t* mask = text_mask + shape.text.first[head.sample];
  return std::find(mask, mask + head.text, 0) != mask + head.text;
}

// Calls body(token, place among the visible) for each visible key, in order.
template <typename Body>
std::int64_t ForEachVisible(const AttentionShape& shape, const Head& head, const std::uint8_t* text_mask,
                            const Body& body) {
  const std::uint8_t* mask = text_mask + shape.text.first[head.sample];
  std::int64_t place = 0;
  for (std::int64_t token = 0; token < head.tokens; ++token) {
    if (token >= head.text || mask[token] != 0) body(token, place++);
  }
  return place;
}

// k and v of this head [N, D] as they are, or, if any key is masked, the visible rows copied together.
VisibleKeys GatherVisible(const AttentionShape& shape, const Head& head, const std::uint8_t* text_mask, bool masked,
                          const float* k, const float* v, Scratch* scratch) {
  if (!masked) return {k, v, head.tokens};
  float* k_rows = scratch->Take(head.tokens * head.size);
  float* v_rows = scratch->Take(head.tokens * head.size);
  const std::int64_t count = ForEachVisible(shape, head, text_mask, [&](std::int64_t token, std::int64_t place) {
    std::copy_n(k + token * head.size, head.size, k_rows + place * head.size);
    std::copy_n(v + token * head.size, head.size, v_rows + place * head.size);
  });
  return {k_rows, v_rows, count};
}

// rows [lanes, padded D] = scale * row(i), zero beyond the `count` rows and D columns.
template <typename Row>
void PackRows(const Head& head, std::int64_t count, std::int64_t lanes, float scale, const Row& row, float* rows) {
  for (std::int64_t i = 0; i < lanes; ++i) {
    float* to = rows + i * head.padded_size;
    std::int64_t d = 0;
    if (i < count) {
      const float* from = row(i);
      for (; d < head.size; ++d) to[d] = scale * from[d];
    }
    for (; d < head.padded_size; ++d) to[d] = 0.0f;
  }
}

// Turns scores [keys, lanes] into exp(score - max) and folds them into the running max and sum of each lane; `rescale`
// receives what earlier sums are to be multiplied with.
void SoftmaxStep(std::int64_t keys, std::int64_t lanes, float* scores, float* max, float* sum, float* rescale) {
  for (std::int64_t first = 0; first < lanes; first += 8) {
    float* column = scores + first;
    Lanes8 top = LoadLanes<Lanes8>(max + first);
    for (std::int64_t j = 0; j < keys; ++j) {
      const Lanes8 score = LoadLanes<Lanes8>(column + j * lanes);
      top = score > top ? score : top;
    }
    for (int lane = 0; lane < 8; ++lane) rescale[first + lane] = ExpOfSmall(max[first + lane] - top[lane]);
    Lanes8 total = LoadLanes<Lanes8>(sum + first) * LoadLanes<Lanes8>(rescale + first);
    StoreLanes(top, max + first);
    for (std::int64_t j = 0; j < keys; ++j) {
      float* row = column + j * lanes;
      for (int lane = 0; lane < 8; ++lane) row[lane] = ExpOfSmall(row[lane] - max[first + lane]);
      total += LoadLanes<Lanes8>(row);
    }
    StoreLanes(total, sum + first);
  }
}

// scores [keys, lanes] -> P, and dscores (holding dO V^T) -> dS.
void SoftmaxBackwardStep(std::int64_t keys, std::int64_t lanes, const float* lse, const float* delta,
                         float* __restrict scores, float* __restrict dscores) {
  for (std::int64_t j = 0; j < keys; ++j) {
    float* __restrict score = scores + j * lanes;
    float* __restrict dscore = dscores + j * lanes;
    for (std::int64_t i = 0; i < lanes; ++i) {
      const float p = ExpOfSmall(score[i] - lse[i]);
      score[i] = p;
      dscore[i] = p * (dscore[i] - delta[i]);
    }
  }
}

void ScaleLanes(std::int64_t rows, std::int64_t lanes, const float* factor, float* values) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < lanes; ++i) values[r * lanes + i] *= factor[i];
  }
}

// Queries [begin, end) of one head.
void ForwardItem(const AttentionShape& shape, const Head& head, std::int64_t begin, std::int64_t end, const float* q,
                 const float* k, const float* v, const std::uint8_t* text_mask, float* out_text, float* out_image,
                 float* lse) {
  const std::int64_t offset = head.row * head.size;
  const std::int64_t depth = head.padded_size;
  const bool masked = AnyMasked(shape, head, text_mask);
  Scratch scratch((masked ? 2 * head.tokens * head.size : 0) + 3 * kQueryBlock * depth + kKeyBlock * kQueryBlock +
                  3 * kQueryBlock + 9 * 16);
  const VisibleKeys keys = GatherVisible(shape, head, text_mask, masked, k + offset, v + offset, &scratch);
  float* rows = scratch.Take(kQueryBlock * depth);
  float* q_lanes = scratch.Take(kQueryBlock * depth);
  float* out_lanes = scratch.Take(kQueryBlock * depth);
  float* scores = scratch.Take(kKeyBlock * kQueryBlock);
  float* max = scratch.Take(kQueryBlock);
  float* sum = scratch.Take(kQueryBlock);
  float* factor = scratch.Take(kQueryBlock);

  for (std::int64_t first = begin; first < end; first += kQueryBlock) {
    const std::int64_t count = std::min(kQueryBlock, end - first);
    const std::int64_t lanes = RoundUpToLanes(count);
    PackRows(
        head, count, lanes, head.scale, [&](std::int64_t i) { return q + offset + (first + i) * head.size; }, rows);
    TransposeLanes(lanes, depth, rows, q_lanes);
    std::fill_n(max, lanes, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, lanes, 0.0f);
    for (std::int64_t key = 0; key < keys.count; key += kKeyBlock) {
      const std::int64_t block = std::min(kKeyBlock, keys.count - key);
      LaneProduct(block, lanes, head.size, keys.k + key * head.size, head.size, 1, q_lanes, lanes, scores, lanes,
                  false);
      SoftmaxStep(block, lanes, scores, max, sum, factor);
      if (key > 0) ScaleLanes(head.size, lanes, factor, out_lanes);
      LaneProduct(head.size, lanes, block, keys.v + key * head.size, 1, head.size, scores, lanes, out_lanes, lanes,
                  key > 0);
    }
    for (std::int64_t i = 0; i < lanes; ++i) factor[i] = 1.0f / sum[i];
    ScaleLanes(head.size, lanes, factor, out_lanes);
    std::fill_n(out_lanes + head.size * lanes, (depth - head.size) * lanes, 0.0f);
    TransposeLanes(depth, lanes, out_lanes, rows);
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(rows + i * depth, head.size, OutputRow(shape, head, first + i, out_text, out_image));
      lse[head.row + first + i] = max[i] + std::log(sum[i]);
    }
  }
}

struct BackwardArguments {
  const float *q, *k, *v;
  const std::uint8_t* text_mask;
  const float *out_text, *out_image, *lse, *dout_text, *dout_image;
  float *dq, *dk, *dv;
};

void BackwardItem(const AttentionShape& shape, std::int64_t item, const BackwardArguments& arguments) {
  const Head head = HeadOf(shape, item);
  const std::int64_t offset = head.row * head.size;
  const std::int64_t depth = head.padded_size;
  const bool masked = AnyMasked(shape, head, arguments.text_mask);
  const bool in_place = !masked && depth == head.size;
  float* dq = arguments.dq + offset;
  float* dk = arguments.dk + offset;
  float* dv = arguments.dv + offset;
  Scratch scratch((masked ? 2 * head.tokens * head.size : 0) + (in_place ? 0 : 2 * head.tokens * depth) +
                  5 * kQueryBlock * depth + 2 * kKeyBlock * kQueryBlock + 2 * kQueryBlock + 13 * 16);
  const VisibleKeys keys =
      GatherVisible(shape, head, arguments.text_mask, masked, arguments.k + offset, arguments.v + offset, &scratch);
  float* dk_rows = in_place ? dk : scratch.Take(head.tokens * depth);
  float* dv_rows = in_place ? dv : scratch.Take(head.tokens * depth);
  float* q_rows = scratch.Take(kQueryBlock * depth);
  float* q_lanes = scratch.Take(kQueryBlock * depth);
  float* dout_rows = scratch.Take(kQueryBlock * depth);
  float* dout_lanes = scratch.Take(kQueryBlock * depth);
  float* dq_lanes = scratch.Take(kQueryBlock * depth);
  float* scores = scratch.Take(kKeyBlock * kQueryBlock);
  float* dscores = scratch.Take(kKeyBlock * kQueryBlock);
  float* lse = scratch.Take(kQueryBlock);
  float* delta = scratch.Take(kQueryBlock);

  // Without a gradient of the text output its queries contribute exactly nothing.
  const std::int64_t begin = arguments.dout_text == nullptr ? head.text : 0;
  std::fill_n(dq, begin * head.size, 0.0f);
  for (std::int64_t first = begin; first < head.tokens; first += kQueryBlock) {
    const std::int64_t count = std::min(kQueryBlock, head.tokens - first);
    const std::int64_t lanes = RoundUpToLanes(count);
    const auto dout_row = [&](std::int64_t i) {
      return OutputRow(shape, head, first + i, arguments.dout_text, arguments.dout_image);
    };
    PackRows(
        head, count, lanes, head.scale, [&](std::int64_t i) { return arguments.q + offset + (first + i) * head.size; },
        q_rows);
    PackRows(head, count, lanes, 1.0f, dout_row, dout_rows);
    TransposeLanes(lanes, depth, q_rows, q_lanes);
    TransposeLanes(lanes, depth, dout_rows, dout_lanes);
    for (std::int64_t i = 0; i < count; ++i) {
      const float* out = OutputRow(shape, head, first + i, arguments.out_text, arguments.out_image);
      const float* dout = dout_row(i);
      delta[i] = LaneSum(head.size, [&](std::int64_t d) { return out[d] * dout[d]; });
    }
    std::fill_n(delta + count, lanes - count, 0.0f);
    std::copy_n(arguments.lse + head.row + first, count, lse);
    std::fill_n(lse + count, lanes - count, 0.0f);
    for (std::int64_t key = 0; key < keys.count; key += kKeyBlock) {
      const std::int64_t block = std::min(kKeyBlock, keys.count - key);
      const float* k = keys.k + key * head.size;
      LaneProduct(block, lanes, head.size, k, head.size, 1, q_lanes, lanes, scores, lanes, false);
      LaneProduct(block, lanes, head.size, keys.v + key * head.size, head.size, 1, dout_lanes, lanes, dscores, lanes,
                  false);
      SoftmaxBackwardStep(block, lanes, lse, delta, scores, dscores);
      LaneProduct(block, depth, count, scores, lanes, 1, dout_rows, depth, dv_rows + key * depth, depth, first > begin);
      LaneProduct(block, depth, count, dscores, lanes, 1, q_rows, depth, dk_rows + key * depth, depth, first > begin);
      LaneProduct(head.size, lanes, block, k, 1, head.size, dscores, lanes, dq_lanes, lanes, key > 0);
    }
    std::fill_n(dq_lanes + head.size * lanes, (depth - head.size) * lanes, 0.0f);
    TransposeLanes(depth, lanes, dq_lanes, q_rows);
    for (std::int64_t i = 0; i < count; ++i) {
      float* row = dq + (first + i) * head.size;
      for (std::int64_t d = 0; d < head.size; ++d) row[d] = head.scale * q_rows[i * depth + d];
    }
  }
  if (in_place) return;
  const auto put = [&](std::int64_t token, std::int64_t place) {
    std::copy_n(dk_rows + place * depth, head.size, dk + token * head.size);
    std::copy_n(dv_rows + place * depth, head.size, dv + token * head.size);
  };
  if (masked) {
    std::fill_n(dk, head.text * head.size, 0.0f);
    std::fill_n(dv, head.text * head.size, 0.0f);
    ForEachVisible(shape, head, arguments.text_mask, put);
  } else {
    for (std::int64_t token = 0; token < head.tokens; ++token) put(token, token);
  }
}

void CheckShape(const AttentionShape& shape) {
  SPOTLIGHT_REQUIRE(shape.heads > 0 && shape.head_size > 0 && shape.text.batch == shape.image.batch,
                    "attention needs heads, a head size and the same samples in both streams");
}

}  // namespace

void AttentionForward(const AttentionShape& shape, ConstActivations queries, ConstActivations keys,
                      ConstActivations values, const std::uint8_t* text_mask, Activations result_text,
                      Activations result_image, float* lse) {
  const float *q = queries.As<float>(), *k = keys.As<float>(), *v = values.As<float>();
  float *out_text = result_text.As<float>(), *out_image = result_image.As<float>();
  CheckShape(shape);
  const std::int64_t most_tokens = shape.text.most_tokens() + shape.image.most_tokens();
  const std::int64_t parts = (most_tokens + kItemQueries - 1) / kItemQueries;
  ParallelFor("AttentionForward", shape.text.batch * shape.heads * parts, [&](std::int64_t item) {
    const Head head = HeadOf(shape, item / parts);
    const std::int64_t begin = (out_text == nullptr ? head.text : 0) + item % parts * kItemQueries;
    const std::int64_t end = std::min(begin + kItemQueries, head.tokens);
    if (begin < end) ForwardItem(shape, head, begin, end, q, k, v, text_mask, out_text, out_image, lse);
  });
}

void AttentionBackward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                       const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image,
                       const float* lse, ConstActivations dout_text, ConstActivations dout_image, Activations dq,
                       Activations dk, Activations dv) {
  CheckShape(shape);
  const BackwardArguments arguments{q.As<float>(),
                                    k.As<float>(),
                                    v.As<float>(),
                                    text_mask,
                                    out_text.As<float>(),
                                    out_image.As<float>(),
                                    lse,
                                    dout_text.As<float>(),
                                    dout_image.As<float>(),
                                    dq.As<float>(),
                                    dk.As<float>(),
                                    dv.As<float>()};
  ParallelFor("AttentionBackward", shape.text.batch * shape.heads,
              [&](std::int64_t item) { BackwardItem(shape, item, arguments); });
}

}  // namespace spotlight::kokkos
