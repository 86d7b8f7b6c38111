// Attention on the device (kernels/attention.hpp), fp32 and bf16: by cuDNN what it takes, the rest by our own kernels,
// kernels/cuda/flash_forward.cuh and flash_backward.cuh. q, k, v, outputs and gradients have one element type.
//
// Our kernels: any even head size up to 384 forward (the autoencoder's), up to 128 backward; internal error otherwise.
// Numbers beyond the head size are computed as zeros up to 64, 128 or 384, so those sizes cost least. A sample's
// results depend neither on its batch nor on which of its queries are wanted.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/cuda/attention_cudnn.hpp"
#include "kernels/cuda/batch_rows.cuh"
#include "kernels/cuda/flash_backward.cuh"
#include "kernels/cuda/flash_forward.cuh"
#include "kernels/cuda/flash_head.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr std::int64_t kMostForward = 384, kMostBackward = 128;

// Whether everything can be moved 16 bytes at a time. Null pointers may stand for anything.
bool IsWide(std::int64_t head_size, std::initializer_list<ConstActivations> arrays) {
  return std::all_of(arrays.begin(), arrays.end(), [=](const ConstActivations& array) {
    return head_size * SizeOf(array.type) % 16 == 0 && reinterpret_cast<std::uintptr_t>(array.data) % 16 == 0;
  });
}

void Check(const AttentionShape& shape, std::int64_t most, std::initializer_list<ConstActivations> arrays) {
  SPOTLIGHT_REQUIRE(shape.heads > 0 && shape.head_size > 0 && shape.text.batch == shape.image.batch,
                    "attention needs heads, a head size and the same samples in both streams");
  SPOTLIGHT_REQUIRE(shape.head_size % 2 == 0 && shape.head_size <= most,
                    "flash attention takes even head sizes up to " + std::to_string(most) + ", not " +
                        std::to_string(shape.head_size));
  for (const ConstActivations& array : arrays) {
    SPOTLIGHT_REQUIRE(!array || array.type == arrays.begin()->type, "attention's arrays differ in element type");
  }
}

// Calls launch(samples, tokens of the longest of them) for groups of samples that fit a launch.
template <typename OneLaunch>
void ForEachLaunch(const AttentionShape& shape, bool wide, const OneLaunch& launch) {
  ForEachChunk(shape.text.batch, [&](std::int64_t begin, std::int64_t count) {
    const FlashShape samples{.text = BatchRows(shape.text, begin, count),
                             .image = BatchRows(shape.image, begin, count),
                             .heads = static_cast<int>(shape.heads),
                             .head_size = static_cast<int>(shape.head_size),
                             .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_size)),
                             .wide = wide};
    std::int64_t tokens = 0;
    for (std::int64_t b = begin; b < begin + count; ++b) {
      tokens = std::max(tokens, shape.text.tokens(b) + shape.image.tokens(b));
    }
    launch(samples, tokens);
  });
}

dim3 Grid(const FlashShape& samples, std::int64_t tokens, int tile) {
  return {static_cast<unsigned>((tokens + tile - 1) / tile), static_cast<unsigned>(samples.heads),
          static_cast<unsigned>(samples.text.samples)};
}

template <typename Element, int kDepth>
void Forward(const AttentionShape& shape, bool wide, const ForwardArrays<Element>& arrays) {
  using Tiling = ForwardTiling<Element, kDepth>;
  static_assert(Tiling::kSharedBytes <= kMostSharedBytes);
  ForEachLaunch(shape, wide, [&](const FlashShape& samples, std::int64_t tokens) {
    dim3 grid = Grid(samples, tokens, Tiling::kQueries);
    grid.x *= Tiling::kSlices;
    Launch(FlashForward<Element, kDepth>, grid, dim3(Tiling::kThreads), Tiling::kSharedBytes, samples, arrays);
  });
}

template <typename Element>
void Forward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
             const std::uint8_t* text_mask, Activations out_text, Activations out_image, float* lse) {
  const bool wide = IsWide(shape.head_size, {q, k, v, out_text ? out_text : out_image, out_image});
  const ForwardArrays<Element> arrays{.q = q.As<Element>(),
                                      .k = k.As<Element>(),
                                      .v = v.As<Element>(),
                                      .text_mask = text_mask,
                                      .out_text = out_text.As<Element>(),
                                      .out_image = out_image.As<Element>(),
                                      .lse = lse};
  if (shape.head_size <= 64) {
    Forward<Element, 64>(shape, wide, arrays);
  } else if (shape.head_size <= 128) {
    Forward<Element, 128>(shape, wide, arrays);
  } else {
    Forward<Element, kMostForward>(shape, wide, arrays);
  }
}

template <typename Element, int kDepth>
void Backward(const AttentionShape& shape, bool wide, const BackwardArrays<Element>& arrays) {
  using Tiling = BackwardTiling<Element, kDepth>;
  static_assert(Tiling::kQueryGradientBytes <= kMostSharedBytes && Tiling::kKeyGradientBytes <= kMostSharedBytes);
  ForEachLaunch(shape, wide, [&](const FlashShape& samples, std::int64_t tokens) {
    const dim3 tiles = Grid(samples, tokens, Tiling::kRows);
    Launch(FlashStatistics<Element>, Grid(samples, tokens, kStatisticsWarps), dim3(32 * kStatisticsWarps), 0, samples,
           arrays);
    Launch(FlashQueryGradient<Element, kDepth>, tiles, dim3(Tiling::kThreads), Tiling::kQueryGradientBytes, samples,
           arrays);
    Launch(FlashKeyGradient<Element, kDepth>, tiles, dim3(Tiling::kThreads), Tiling::kKeyGradientBytes, samples,
           arrays);
  });
}

template <typename Element>
void Backward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
              const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image, const float* lse,
              ConstActivations dout_text, ConstActivations dout_image, Activations dq, Activations dk, Activations dv) {
  const bool wide = IsWide(shape.head_size, {q, k, v, dout_text ? dout_text : dout_image, dout_image, dq, dk, dv});
  const auto rows = static_cast<std::size_t>((shape.text.rows() + shape.image.rows()) * shape.heads);
  const BackwardArrays<Element> arrays{.q = q.As<Element>(),
                                       .k = k.As<Element>(),
                                       .v = v.As<Element>(),
                                       .text_mask = text_mask,
                                       .out_text = out_text.As<Element>(),
                                       .out_image = out_image.As<Element>(),
                                       .lse = lse,
                                       .dout_text = dout_text.As<Element>(),
                                       .dout_image = dout_image.As<Element>(),
                                       .statistics = Scratch<float2>(rows),
                                       .dq = dq.As<Element>(),
                                       .dk = dk.As<Element>(),
                                       .dv = dv.As<Element>()};
  if (shape.head_size <= 64) {
    Backward<Element, 64>(shape, wide, arrays);
  } else {
    Backward<Element, kMostBackward>(shape, wide, arrays);
  }
}

}  // namespace

void AttentionForward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                      const std::uint8_t* text_mask, Activations out_text, Activations out_image, float* lse) {
#ifdef __CUDACC__
  if (AttentionForwardByCudnn(shape, q, k, v, text_mask, out_text, out_image, lse)) return;
#endif
  Check(shape, kMostForward, {q, k, v, out_text, out_image});
  if (q.type == ElementType::kFp32) {
    Forward<float>(shape, q, k, v, text_mask, out_text, out_image, lse);
  } else {
    Forward<Bfloat16>(shape, q, k, v, text_mask, out_text, out_image, lse);
  }
}

void AttentionBackward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                       const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image,
                       const float* lse, ConstActivations dout_text, ConstActivations dout_image, Activations dq,
                       Activations dk, Activations dv) {
#ifdef __CUDACC__
  if (AttentionBackwardByCudnn(shape, q, k, v, text_mask, out_text, out_image, lse, dout_text, dout_image, dq, dk,
                               dv)) {
    return;
  }
#endif
  Check(shape, kMostBackward, {q, k, v, out_text, out_image, dout_text, dout_image, dq, dk, dv});
  if (q.type == ElementType::kFp32) {
    Backward<float>(shape, q, k, v, text_mask, out_text, out_image, lse, dout_text, dout_image, dq, dk, dv);
  } else {
    Backward<Bfloat16>(shape, q, k, v, text_mask, out_text, out_image, lse, dout_text, dout_image, dq, dk, dv);
  }
}

}  // namespace spotlight::cuda
