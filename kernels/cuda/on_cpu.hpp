// CUDA kernels on the CPU, to test them where there is no GPU: what a kernel's source uses of CUDA, for a compiler that
// knows none of it. No part of the toolkit is needed, and none may be included (guard it by __CUDACC__).
//
// Has: grids and blocks of three dimensions, static and dynamic shared memory, __syncthreads, __syncwarp, shuffles,
// votes, vector types, and the intrinsics below; tensor cores and asynchronous copies are mma.cuh's. Has not: clusters,
// atomics. Compile with -Wno-unknown-pragmas (#pragma unroll).
//
// How it runs: the threads of a block are fibers of one thread of the processor, so a block is never truly
// concurrent, and `__shared__` is `static thread_local`. A thread runs until it has to wait for others; a warp runs
// ahead as far as it can before the next one starts, so that a missing __syncthreads gives wrong numbers. Blocks are
// spread over OpenMP threads. The order of blocks, warps and lanes is that of the environment variable
// SPOTLIGHT_CUDA_ORDER, read at every launch: "forward" (also if unset), "reverse", or a number, the seed of a shuffle.
// Dynamic shared memory starts as bytes 0xCB and so do values shuffled from lanes that take no part. Static shared
// memory starts as what the last block left, or 0.
//
// Errors end the program with a report on stderr that names launch, block, threads and place, where a GPU hangs or
// computes something: threads that wait for each other in different places (a barrier that not all reach, or that a
// thread will not reach because it has returned), a lane that is not in its own mask, lanes of a warp that meet in
// different operations, a block of no or more than 1024 threads, a stack that ran over, an instruction of global memory
// that is given shared memory or a thread's own (RequireGlobal). Races between threads of a warp without a barrier are
// found only if the order shows them; coalescing, registers and speed are not modelled.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// A vector may stand for anything of its size, as in kernels that load 16 bytes at once.
#define SPOTLIGHT_VECTOR(bytes) __attribute__((aligned(bytes), may_alias))
struct int2 {
  int x, y;
} SPOTLIGHT_VECTOR(8);
struct int4 {
  int x, y, z, w;
} SPOTLIGHT_VECTOR(16);
struct uint2 {
  unsigned x, y;
} SPOTLIGHT_VECTOR(8);
struct uint3 {
  unsigned x, y, z;
};
struct uint4 {
  unsigned x, y, z, w;
} SPOTLIGHT_VECTOR(16);
struct float2 {
  float x, y;
} SPOTLIGHT_VECTOR(8);
struct float4 {
  float x, y, z, w;
} SPOTLIGHT_VECTOR(16);
struct double2 {
  double x, y;
} SPOTLIGHT_VECTOR(16);
#undef SPOTLIGHT_VECTOR
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned size_x = 1, unsigned size_y = 1, unsigned size_z = 1) : x(size_x), y(size_y), z(size_z) {}
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

// Of the thread that runs; set whenever another one goes on.
inline constinit thread_local uint3 threadIdx{}, blockIdx{};
inline constinit thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace spotlight::on_cpu {

using Place = std::source_location;
enum class Operation : std::uint8_t { kSyncWarp, kShuffle, kVote };

// Runs `thread` for every thread of the grid (no block if a dimension of it is 0). UserError: the environment variable.
void RunGrid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& thread, Place where);

// Of the block that runs.
std::byte* DynamicSharedMemory();
// Waits for every thread of the block.
void BlockBarrier(Place where);
// Waits for the lanes of `mask` (those of them that the block has), leaves `value` with them and returns the value
// that lane `source` left: 0xCB bytes if it takes no part.
std::uint64_t Exchange(unsigned mask, std::uint64_t value, int source, Operation operation, Place where);
// Waits for the lanes of `mask`; bit l: lane l takes part and its `predicate` holds.
unsigned Ballot(unsigned mask, bool predicate, Place where);
// The number of the calling thread within its warp.
int Lane();
// For what stands for an instruction of global, or of shared memory: ends the program with a report if `address` is the
// other's. Thread-local variables count as shared memory, the stacks of the block's threads as neither.
void RequireGlobal(const void* address);
void RequireShared(const void* address);

template <typename T>
T Shuffle(unsigned mask, T value, int source, Place where) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) >= 4 && sizeof(T) <= 8, "the shuffles of CUDA: 4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = Exchange(mask, bits, source, Operation::kShuffle, where);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace spotlight::on_cpu

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  spotlight::on_cpu::BlockBarrier(where);
}
inline void __syncwarp(unsigned mask = ~0u, std::source_location where = std::source_location::current()) {
  spotlight::on_cpu::Exchange(mask, 0, spotlight::on_cpu::Lane(), spotlight::on_cpu::Operation::kSyncWarp, where);
}

// Shuffles within groups of `width` lanes, a power of two.
template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize,
              std::source_location where = std::source_location::current()) {
  const int group = spotlight::on_cpu::Lane() & ~(width - 1);
  return spotlight::on_cpu::Shuffle(mask, value, group + (source & (width - 1)), where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize,
                  std::source_location where = std::source_location::current()) {
  const int lane = spotlight::on_cpu::Lane(), source = lane ^ lane_mask;
  return spotlight::on_cpu::Shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                   std::source_location where = std::source_location::current()) {
  const int lane = spotlight::on_cpu::Lane(), source = lane + static_cast<int>(delta);
  return spotlight::on_cpu::Shuffle(mask, value, source > (lane | (width - 1)) ? lane : source, where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize,
                 std::source_location where = std::source_location::current()) {
  const int lane = spotlight::on_cpu::Lane(), source = lane - static_cast<int>(delta);
  return spotlight::on_cpu::Shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  return spotlight::on_cpu::Ballot(mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return spotlight::on_cpu::Ballot(mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return spotlight::on_cpu::Ballot(mask, predicate == 0, where) == 0;
}

// Arithmetic. _rn: rounded once, never contracted.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1; }
template <typename T>
requires std::is_arithmetic_v<T> T min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return b < a ? b : a;
}
template <typename T>
requires std::is_arithmetic_v<T> T max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a < b ? b : a;
}

// Loads and stores with a hint to the caches.
template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}
