#include "kernels/buffer.hpp"

#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/operations.hpp"

namespace spotlight {
namespace {

constexpr std::uintptr_t kAlignment = 64;  // what memory.hpp promises

}  // namespace

template <typename T>
BasicBuffer<T> BasicBuffer<T>::ViewOf(std::span<T> memory) {
  SPOTLIGHT_REQUIRE(reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment == 0, "memory is not aligned");
  BasicBuffer view;
  view.data_ = std::unique_ptr<T, Free>(memory.data(), Free{false});
  view.size_ = view.capacity_ = static_cast<std::int64_t>(memory.size());
  return view;
}

template <typename T>
BasicBuffer<T> BasicBuffer<T>::Reading(std::span<T> host) {
  if (ActiveOperations().host_memory) return ViewOf(host);
  BasicBuffer copy(static_cast<std::int64_t>(host.size()));
  copy.CopyFromHost(host);
  return copy;
}

template <typename T>
void BasicBuffer<T>::Resize(std::int64_t size) {
  SPOTLIGHT_REQUIRE(size >= 0, "size = " + std::to_string(size));
  if (size > capacity_) {
    data_ = std::unique_ptr<T, Free>();  // first: old and new need not fit together; and what follows is owned
    capacity_ = 0;
    size_ = 0;
    data_.reset(static_cast<T*>(AllocateMemory(static_cast<std::size_t>(size) * sizeof(T))));
    capacity_ = size;
  }
  size_ = size;
}

template <typename T>
void BasicBuffer<T>::Zero() {
  ZeroMemory(data(), static_cast<std::size_t>(size_) * sizeof(T));
}

template <typename T>
void BasicBuffer<T>::CopyFromHost(std::span<const T> host) {
  const auto count = static_cast<std::int64_t>(host.size());
  SPOTLIGHT_REQUIRE(count <= size_, std::to_string(count) + " into " + std::to_string(size_));
  CopyIn(data(), host.data(), host.size_bytes());
}

template <typename T>
void BasicBuffer<T>::CopyToHost(std::span<T> host) const {
  const auto count = static_cast<std::int64_t>(host.size());
  SPOTLIGHT_REQUIRE(count <= size_, std::to_string(count) + " from " + std::to_string(size_));
  CopyOut(host.data(), data(), host.size_bytes());
}

template <typename T>
void BasicBuffer<T>::Fill(std::int64_t offset, std::int64_t size, const std::function<void(std::span<T>)>& fill) {
  SPOTLIGHT_REQUIRE(offset >= 0 && size >= 0 && offset + size <= size_, "a range of another buffer");
  const auto count = static_cast<std::size_t>(size);
  if (ActiveOperations().host_memory) return fill({data() + offset, count});
  std::vector<T> staged(count);
  fill(staged);
  CopyIn(data() + offset, staged.data(), count * sizeof(T));
}

template <typename T>
void BasicBuffer<T>::Free::operator()(T* pointer) const {
  if (owned) FreeMemory(pointer);
}

template class BasicBuffer<float>;
template class BasicBuffer<Bfloat16>;
template class BasicBuffer<std::byte>;

}  // namespace spotlight
