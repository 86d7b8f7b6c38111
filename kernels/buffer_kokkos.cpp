#include <algorithm>
#include <new>
#include <string>

#include "base/error.hpp"
#include "kernels/buffer.hpp"

namespace spotlight {
namespace {

constexpr std::align_val_t kAlignment{64};  // a cache line and the widest vector

}  // namespace

void Buffer::Resize(std::int64_t size) {
  SPOTLIGHT_REQUIRE(size >= 0, "size = " + std::to_string(size));
  if (size > capacity_) {
    data_.reset();  // first: old and new need not fit together
    capacity_ = 0;
    size_ = 0;
    data_.reset(static_cast<float*>(::operator new(static_cast<std::size_t>(size) * sizeof(float), kAlignment)));
    capacity_ = size;
  }
  size_ = size;
}

void Buffer::Zero() { ZeroFloats(data(), size_); }

void Buffer::CopyFromHost(std::span<const float> host) {
  const auto count = static_cast<std::int64_t>(host.size());
  SPOTLIGHT_REQUIRE(count <= size_, std::to_string(count) + " into " + std::to_string(size_));
  CopyFloats(host.data(), data(), count);
}

void Buffer::CopyToHost(std::span<float> host) const {
  const auto count = static_cast<std::int64_t>(host.size());
  SPOTLIGHT_REQUIRE(count <= size_, std::to_string(count) + " from " + std::to_string(size_));
  CopyFloats(data(), host.data(), count);
}

void Buffer::Free::operator()(float* pointer) const { ::operator delete(pointer, kAlignment); }

void CopyRow(Buffer& buffer, std::int64_t rows, std::int64_t from, std::int64_t to) {
  const std::int64_t size = buffer.size() / rows;
  CopyFloats(buffer.data() + from * size, buffer.data() + to * size, size);
}

void CopyFloats(const float* from, float* to, std::int64_t size) { std::copy_n(from, size, to); }

void ZeroFloats(float* to, std::int64_t size) { std::fill_n(to, size, 0.0f); }

}  // namespace spotlight
