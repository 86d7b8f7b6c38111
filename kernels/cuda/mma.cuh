// The tensor-core instructions of bf16 kernels, each as one small function: under nvcc the PTX instruction (sm_80 and
// later), elsewhere the same on the CPU, so that a wrong fragment layout or a missing wait gives wrong numbers in tests
// without a GPU. Blocks are one-dimensional; all 32 lanes of a warp call together.
//
// Fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16"), g = lane / 4, t = lane % 4; a register of `a` and `b` holds
// two bf16 numbers, the lower half the one with the smaller k:
//
//   a [16 x 16]  a[0] (g, 2t)  a[1] (g + 8, 2t)  a[2] (g, 2t + 8)  a[3] (g + 8, 2t + 8)     (row, k), and k + 1
//   b [16 x 8]   b[0] (2t, g)  b[1] (2t + 8, g)                                             (k, column), and k + 1
//   c [16 x 8]   c[0] (g, 2t)  c[1] (g, 2t + 1)  c[2] (g + 8, 2t)  c[3] (g + 8, 2t + 1)     (row, column)
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.hpp"

#ifndef __CUDACC__
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/bfloat16.hpp"
#include "base/error.hpp"
#endif

namespace spotlight::cuda {

#ifdef __CUDACC__

// An address in shared memory; plus a number of bytes it is another one.
using SharedAddress = std::uint32_t;

__device__ __forceinline__ SharedAddress ToShared(const void* memory) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(memory));
}

// The copies from device to shared memory that this thread has under way. `to` may be read, and `from` overwritten, by
// this thread after Wait(), by the others after a barrier behind it.
class AsyncCopies {
 public:
  // kBytes at `to` (both aligned to kBytes: 4, 8 or 16) become those at `from`, or zeros if they are not `present`;
  // `from` is not read then.
  template <int kBytes>
  __device__ __forceinline__ void Copy(void* to, const void* from, bool present) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    const SharedAddress address = ToShared(to);
    const int bytes = present ? kBytes : 0;
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(kBytes), "r"(bytes)
                   : "memory");
    }
  }
  // For all of them.
  __device__ __forceinline__ void Wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
};

// Four 8 x 8 matrices of 2-byte numbers from shared memory. `row`: the 16-byte aligned row lane % 8 of matrix lane / 8.
// matrices[m]: elements (g, 2t) and (g, 2t + 1) of matrix m.
__device__ __forceinline__ void LoadMatrices(SharedAddress row, std::uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}

// As LoadMatrices, of the transposed matrices: matrices[m] has elements (2t, g) and (2t + 1, g).
__device__ __forceinline__ void LoadMatricesTransposed(SharedAddress row, std::uint32_t (&matrices)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}

// c += a b, products exact, sums in fp32.
__device__ __forceinline__ void MultiplyAdd(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                                            float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded to bf16 (nearest, ties to even), `low` in the lower half.
__device__ __forceinline__ std::uint32_t PackBfloat16(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// 2^x within 2 units in the last place; results below the smallest normal number are 0.
__device__ __forceinline__ float Exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

#else

using SharedAddress = const std::byte*;

inline SharedAddress ToShared(const void* memory) { return static_cast<const std::byte*>(memory); }

// A thread with an odd number copies when it waits, one with an even number at once: what is read before the wait, and
// what is overwritten while others still read it, are both wrong for some.
class AsyncCopies {
 public:
  template <int kBytes>
  void Copy(void* to, const void* from, bool present) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    on_cpu::RequireShared(to);
    on_cpu::RequireGlobal(from);
    pending_.push_back({to, present ? from : nullptr, kBytes});
    if (threadIdx.x % 2 == 0) Wait();
  }
  void Wait() {
    for (const Pending& copy : pending_) {
      if (copy.from == nullptr) {
        std::memset(copy.to, 0, copy.bytes);
      } else {
        std::memcpy(copy.to, copy.from, copy.bytes);
      }
    }
    pending_.clear();
  }

 private:
  struct Pending {
    void* to;
    const void* from;  // null: zeros
    std::size_t bytes;
  };
  std::vector<Pending> pending_;
};

// What the lanes of the calling warp show each other in one instruction.
struct LaneOperands {
  SharedAddress row;
  std::uint32_t a[4], b[2];
};

inline LaneOperands* WarpOperands() {
  static thread_local std::array<LaneOperands, 1024> operands;
  return operands.data() + threadIdx.x / 32 * 32;
}

// Element `column` of row `row` of matrix `matrix` of those that the lanes point to.
inline std::uint32_t MatrixElement(int matrix, int row, int column) {
  std::uint16_t element;
  std::memcpy(&element, WarpOperands()[8 * matrix + row].row + 2 * column, 2);
  return element;
}

// Internal error: two rows of a matrix lie in the same banks (the instruction would take twice the time).
inline void ShowMatrices(SharedAddress row) {
  const LaneOperands* operands = WarpOperands();
  WarpOperands()[threadIdx.x % 32].row = row;
  __syncwarp();
  unsigned banks = 0;
  const int first = static_cast<int>(threadIdx.x % 32 / 8 * 8);
  for (int i = 0; i < 8; ++i) banks |= 1u << reinterpret_cast<std::uintptr_t>(operands[first + i].row) / 16 % 8;
  SPOTLIGHT_REQUIRE(banks == 0xffu, "the rows of a matrix in shared memory must lie in different banks");
}

inline void LoadMatrices(SharedAddress row, std::uint32_t (&matrices)[4]) {
  const int g = on_cpu::Lane() / 4, t = on_cpu::Lane() % 4;
  ShowMatrices(row);
  for (int m = 0; m < 4; ++m) matrices[m] = MatrixElement(m, g, 2 * t) | MatrixElement(m, g, 2 * t + 1) << 16;
  __syncwarp();
}

inline void LoadMatricesTransposed(SharedAddress row, std::uint32_t (&matrices)[4]) {
  const int g = on_cpu::Lane() / 4, t = on_cpu::Lane() % 4;
  ShowMatrices(row);
  for (int m = 0; m < 4; ++m) matrices[m] = MatrixElement(m, 2 * t, g) | MatrixElement(m, 2 * t + 1, g) << 16;
  __syncwarp();
}

inline void MultiplyAdd(const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, float (&c)[4]) {
  const int g = on_cpu::Lane() / 4, t = on_cpu::Lane() % 4;
  LaneOperands* operands = WarpOperands();
  LaneOperands& own = operands[on_cpu::Lane()];
  for (int r = 0; r < 4; ++r) own.a[r] = a[r];
  own.b[0] = b0, own.b[1] = b1;
  __syncwarp();
  const auto low = [](std::uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  const auto high = [](std::uint32_t pair) { return std::bit_cast<float>(pair & 0xffff0000u); };
  for (int k = 0; k < 16; k += 2) {
    const int part = k / 8, lane = k % 8 / 2;
    for (int r = 0; r < 4; ++r) {
      const std::uint32_t left = operands[4 * g + lane].a[2 * part + r / 2];
      const std::uint32_t right = operands[4 * (2 * t + r % 2) + lane].b[part];
      c[r] += low(left) * low(right);
      c[r] += high(left) * high(right);
    }
  }
  __syncwarp();
}

inline std::uint32_t PackBfloat16(float low, float high) {
  return ToBfloat16(low).bits | static_cast<std::uint32_t>(ToBfloat16(high).bits) << 16;
}

inline float Exp2(float x) { return std::exp2(x); }

#endif

}  // namespace spotlight::cuda
