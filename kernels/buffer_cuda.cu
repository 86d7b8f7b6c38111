// Moves and casts of raw memory on CUDA devices (kernels/buffer.hpp). Nothing waits: what is launched later sees the
// result.
#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/runtime.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

struct ZeroBody {
  float* to;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    StoreQuad(to + at, Quad{}, extent);
  }
};

// ToBfloat16 of base, bit for bit: the device's own rounding knows one NaN only.
__device__ __forceinline__ unsigned Rounded(float value) {
  return value == value ? PackBfloat16(value, 0.0f) : __float_as_uint(value) >> 16 | 0x40u;
}

struct RoundBody {
  const float* from;
  Bfloat16* to;

  template <typename Extent>
  __device__ void operator()(int, std::int64_t at, Extent extent) const {
    const Quad quad = LoadQuad(from + at, extent);
    Store(quad, to + at, extent);
  }
  __device__ static void Store(const Quad& quad, Bfloat16* to, WholeQuad) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(Rounded(quad.at[0]) | Rounded(quad.at[1]) << 16, Rounded(quad.at[2]) | Rounded(quad.at[3]) << 16);
  }
  __device__ static void Store(const Quad& quad, Bfloat16* to, PartOfQuad part) {
    for (int j = 0; j < 4; ++j) {
      if (j < part.count) to[j].bits = static_cast<std::uint16_t>(Rounded(quad.at[j]));
    }
  }
};

void Copy(ConstActivations from, Activations to, std::int64_t size) {
  const BlockCopy all{.rows = 1, .size = size};
  cuda::CopyBlocks(std::span(&all, 1), from, to);
}

// Elements [from, from + size) of `values` go `shift` > 0 elements towards the front, where others of them may lie: in
// pieces as long as the way, which are written where nothing waits to be read, or, if it is short, through the scratch
// memory.
void MoveToFront(Activations values, std::int64_t from, std::int64_t size, std::int64_t shift) {
  constexpr std::int64_t kStageBytes = std::int64_t{16} << 20;
  const std::int64_t stage = std::min(size, kStageBytes / SizeOf(values.type));
  const bool direct = shift >= stage;
  const std::int64_t piece = direct ? shift : stage;
  const Activations staged(direct ? nullptr : ScratchBytes(static_cast<std::size_t>(stage * SizeOf(values.type))),
                           values.type);
  for (std::int64_t done = 0; done < size; done += piece) {
    const Activations source = values + from + done;
    const Activations target = values + (from - shift) + done;
    const std::int64_t count = std::min(piece, size - done);
    if (direct) {
      Copy(source, target, count);
    } else {
      Copy(source, staged, count);
      Copy(staged, target, count);
    }
  }
}

}  // namespace

void KeepRows(Activations values, const TokenRows& rows, std::int64_t width, std::span<const std::int64_t> kept) {
  std::int64_t to = 0;
  for (const std::int64_t sample : kept) {
    const std::int64_t from = rows.first[sample] * width, size = rows.tokens(sample) * width;
    if (from > to && size > 0) MoveToFront(values, from, size, from - to);
    to += size;
  }
}

void CopyFloats(const float* from, float* to, std::int64_t size) { Copy(from, to, size); }

void ZeroFloats(float* to, std::int64_t size) { Pointwise(1, size, QuadsAligned(1, size, to), ZeroBody{to}); }

void RoundToBfloat16(std::int64_t size, const float* from, Bfloat16* to) {
  Pointwise(1, size, QuadsAligned(1, size, from, to), RoundBody{from, to});
}

}  // namespace spotlight::cuda
