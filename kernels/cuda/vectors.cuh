// Loads and stores of neighbouring elements, stored as float or Bfloat16, as fp32 values in registers: with 8 or 16
// bytes an instruction where the rows allow it, else one by one.
// What is stored goes to global memory.
//
// A row is an array of `size` elements; a thread takes the kCount of them from `first` on. Wide (kWide): first is a
// multiple of kCount, so is size, and the row's start is aligned to the kCount elements or 16 bytes, whichever is less;
// CanBeWide() says on the host whether that is so. Otherwise any start and size will do; elements past the end read as
// 0 and are not written. Both give the same values to the same thread: sums do not depend on which one it is.
#pragma once

#include <cstdint>

#include "base/bfloat16.hpp"
#include "kernels/activations.hpp"
#include "kernels/cuda/launch.hpp"

namespace spotlight::cuda {

constexpr int kVector = 4;  // elements a thread takes at once where fp32 is among the arrays: 16 bytes of it

// True if rows of `size` elements that start at a multiple of size after `data` can be read and written wide.
template <int kCount = kVector, typename... Pointers>
bool CanBeWide(std::int64_t size, Pointers... data) {
  return size % kCount == 0 && ((reinterpret_cast<std::uintptr_t>(data) % 16 == 0) && ...);
}

// Calls body.operator()<T, kWide>() with the type that `type` names.
template <typename Body>
void WithElements(ElementType type, bool wide, const Body& body) {
  if (type == ElementType::kBf16) {
    wide ? body.template operator()<Bfloat16, true>() : body.template operator()<Bfloat16, false>();
  } else {
    wide ? body.template operator()<float, true>() : body.template operator()<float, false>();
  }
}

// Two Bfloat16 as one word, the first in the low half; rounded to nearest, ties to even, as ToBfloat16 (base) does.
// Not a number stays so, but with other bits.
__device__ __forceinline__ unsigned PackBfloat16(float low, float high) {
#ifdef __CUDACC__
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return static_cast<unsigned>(ToBfloat16(low).bits) | static_cast<unsigned>(ToBfloat16(high).bits) << 16;
#endif
}
__device__ __forceinline__ float LowBfloat16(unsigned packed) { return __uint_as_float(packed << 16); }
__device__ __forceinline__ float HighBfloat16(unsigned packed) { return __uint_as_float(packed & 0xffff0000u); }

__device__ __forceinline__ float LoadValue(const float* from) { return *from; }
__device__ __forceinline__ float LoadValue(const Bfloat16* from) {
  return __uint_as_float(static_cast<unsigned>(from->bits) << 16);
}
__device__ __forceinline__ void StoreValue(float* to, float value) { *to = value; }
__device__ __forceinline__ void StoreValue(Bfloat16* to, float value) {
  to->bits = static_cast<std::uint16_t>(PackBfloat16(value, 0.0f));
}

template <int kCount>
__device__ __forceinline__ void LoadWide(const float* from, float (&values)[kCount]) {
  static_assert(kCount == 2 || kCount % 4 == 0);
  if constexpr (kCount == 2) {
    const float2 word = *reinterpret_cast<const float2*>(from);
    values[0] = word.x;
    values[1] = word.y;
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const float4 word = *reinterpret_cast<const float4*>(from + i);
      values[i] = word.x;
      values[i + 1] = word.y;
      values[i + 2] = word.z;
      values[i + 3] = word.w;
    }
  }
}
template <int kCount>
__device__ __forceinline__ void LoadWide(const Bfloat16* from, float (&values)[kCount]) {
  static_assert(kCount == 4 || kCount == 8);
  unsigned words[kCount / 2];
  if constexpr (kCount == 8) {
    *reinterpret_cast<uint4*>(words) = *reinterpret_cast<const uint4*>(from);
  } else {
    *reinterpret_cast<uint2*>(words) = *reinterpret_cast<const uint2*>(from);
  }
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    values[i] = LowBfloat16(words[i / 2]);
    values[i + 1] = HighBfloat16(words[i / 2]);
  }
}
// Global memory only, and so is all that stores wide: the instruction does not take shared or local memory. One
// instruction, because of an assignment nvcc 13 makes several where it cannot see that the address is aligned.
template <typename Vector>
__device__ __forceinline__ void StoreVector(void* to, Vector value) {
#ifdef __CUDACC__
  __stwb(static_cast<Vector*>(to), value);
#else
  on_cpu::RequireGlobal(to);
  *static_cast<Vector*>(to) = value;
#endif
}

template <int kCount>
__device__ __forceinline__ void StoreWide(float* to, const float (&values)[kCount]) {
  static_assert(kCount % 4 == 0);
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    StoreVector(to + i, make_float4(values[i], values[i + 1], values[i + 2], values[i + 3]));
  }
}
template <int kCount>
__device__ __forceinline__ void StoreWide(Bfloat16* to, const float (&values)[kCount]) {
  static_assert(kCount == 4 || kCount == 8);
  unsigned words[kCount / 2];
#pragma unroll
  for (int i = 0; i < kCount; i += 2) words[i / 2] = PackBfloat16(values[i], values[i + 1]);
  if constexpr (kCount == 8) {
    StoreVector(to, make_uint4(words[0], words[1], words[2], words[3]));
  } else {
    StoreVector(to, make_uint2(words[0], words[1]));
  }
}

// Elements first .. first + kCount of a row of `size`, which may begin past its end.
template <bool kWide, int kCount, typename T>
__device__ __forceinline__ void LoadValues(const T* row, int first, int size, float (&values)[kCount]) {
  if constexpr (kWide) {
    if (first < size) return LoadWide(row + first, values);
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] = !kWide && first + i < size ? LoadValue(row + first + i) : 0.0f;
}
template <bool kWide, int kCount, typename T>
__device__ __forceinline__ void StoreValues(T* row, int first, int size, const float (&values)[kCount]) {
  if constexpr (kWide) {
    if (first < size) StoreWide(row + first, values);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (first + i < size) StoreValue(row + first + i, values[i]);
    }
  }
}

}  // namespace spotlight::cuda
