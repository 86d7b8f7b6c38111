#include <algorithm>
#include <cstring>
#include <new>

#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"

namespace spotlight::kokkos {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line and the widest vector

}  // namespace

void* AllocateMemory(std::size_t bytes) { return ::operator new(bytes, kAlignment); }

void FreeMemory(void* memory) { ::operator delete(memory, kAlignment); }

void CopyIn(void* to, const void* host, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, host, bytes);
}

void CopyOut(void* host, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(host, from, bytes);
}

void ZeroMemory(void* to, std::size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

void* LaunchQueue() { return nullptr; }

void KeepRows(Activations values, const TokenRows& rows, std::int64_t width, std::span<const std::int64_t> kept) {
  float* const all = values.As<float>();
  float* to = all;
  for (const std::int64_t sample : kept) {
    const float* from = all + rows.first[sample] * width;
    const std::int64_t size = rows.tokens(sample) * width;
    if (from != to) std::copy(from, from + size, to);  // never behind its source, so in order
    to += size;
  }
}

void CopyFloats(const float* from, float* to, std::int64_t size) { std::copy_n(from, size, to); }

void ZeroFloats(float* to, std::int64_t size) { std::fill_n(to, size, 0.0f); }

void RoundToBfloat16(std::int64_t size, const float* from, Bfloat16* to) {
  ParallelBlocks("RoundToBfloat16", size, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] = ToBfloat16(from[i]);
  });
}

}  // namespace spotlight::kokkos
