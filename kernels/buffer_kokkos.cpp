#include <algorithm>
#include <new>
#include <string>

#include "base/error.hpp"
#include "kernels/buffer.hpp"
#include "kernels/parallel.hpp"

namespace spotlight {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line and the widest vector

}  // namespace

template <typename T>
BasicBuffer<T> BasicBuffer<T>::ViewOf(std::span<T> memory) {
  constexpr auto kAligned = static_cast<std::uintptr_t>(kAlignment);
  SPOTLIGHT_REQUIRE(reinterpret_cast<std::uintptr_t>(memory.data()) % kAligned == 0, "memory is not aligned");
  BasicBuffer view;
  view.data_ = std::unique_ptr<T, Free>(memory.data(), Free{false});
  view.size_ = view.capacity_ = static_cast<std::int64_t>(memory.size());
  return view;
}

template <typename T>
void BasicBuffer<T>::Resize(std::int64_t size) {
  SPOTLIGHT_REQUIRE(size >= 0, "size = " + std::to_string(size));
  if (size > capacity_) {
    data_ = {};  // first: old and new need not fit together
    capacity_ = 0;
    size_ = 0;
    data_.reset(static_cast<T*>(::operator new(static_cast<std::size_t>(size) * sizeof(T), kAlignment)));
    capacity_ = size;
  }
  size_ = size;
}

template <typename T>
void BasicBuffer<T>::Zero() {
  std::fill_n(data(), size_, T{});
}

template <typename T>
void BasicBuffer<T>::CopyFromHost(std::span<const T> host) {
  const auto count = static_cast<std::int64_t>(host.size());
  SPOTLIGHT_REQUIRE(count <= size_, std::to_string(count) + " into " + std::to_string(size_));
  std::copy(host.begin(), host.end(), data());
}

template <typename T>
void BasicBuffer<T>::CopyToHost(std::span<T> host) const {
  const auto count = static_cast<std::int64_t>(host.size());
  SPOTLIGHT_REQUIRE(count <= size_, std::to_string(count) + " from " + std::to_string(size_));
  std::copy_n(data(), count, host.begin());
}

template <typename T>
void BasicBuffer<T>::Fill(std::int64_t offset, std::int64_t size, const std::function<void(std::span<T>)>& fill) {
  SPOTLIGHT_REQUIRE(offset >= 0 && size >= 0 && offset + size <= size_, "a range of another buffer");
  fill({data() + offset, static_cast<std::size_t>(size)});
}

template <typename T>
void BasicBuffer<T>::Free::operator()(T* pointer) const {
  if (owned) ::operator delete(pointer, kAlignment);
}

template class BasicBuffer<float>;
template class BasicBuffer<Bfloat16>;

void KeepRows(Buffer& buffer, const TokenRows& rows, std::int64_t width, std::span<const std::int64_t> kept) {
  float* to = buffer.data();
  for (const std::int64_t sample : kept) {
    const float* from = buffer.data() + rows.first[sample] * width;
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

}  // namespace spotlight
