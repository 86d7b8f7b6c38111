// Memory that kernels work on (kernels/memory.hpp). Callers never assume that it is the host's: they fill and read
// buffers through the functions here only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/bfloat16.hpp"
#include "kernels/activations.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

// `size` values, 64-byte aligned: its own, or a view of memory that others own. Contents are undefined after Resize.
// Move-only.
template <typename T>
class BasicBuffer {
 public:
  BasicBuffer() = default;
  explicit BasicBuffer(std::int64_t size) { Resize(size); }
  // `memory` must be aligned, and outlive the buffer. Where it is read-only, who has it calls no more than data(),
  // size() and CopyToHost.
  static BasicBuffer ViewOf(std::span<T> memory);
  // Host memory as kernels can read it: a view where they read the host's, which must outlive the buffer; else a copy.
  static BasicBuffer Reading(std::span<T> host);

  // Keeps the memory if it is large enough, so that a loop with a varying batch allocates once.
  void Resize(std::int64_t size);
  void Zero();

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

  void CopyFromHost(std::span<const T> host);  // host.size() <= size()
  void CopyToHost(std::span<T> host) const;
  // `fill` writes values [offset, offset + size) through host memory; on the CPU straight into place.
  void Fill(std::int64_t offset, std::int64_t size, const std::function<void(std::span<T>)>& fill);

 private:
  struct Free {
    bool owned = true;
    void operator()(T* pointer) const;
  };
  std::unique_ptr<T, Free> data_;
  std::int64_t size_ = 0;
  std::int64_t capacity_ = 0;
};

using Buffer = BasicBuffer<float>;
using Bfloat16Buffer = BasicBuffer<Bfloat16>;
using ByteBuffer = BasicBuffer<std::byte>;

// Memory of its own for activations, whose type is chosen together with their number. Contents are undefined after
// Resize, which keeps the memory if it is large enough.
class ActivationBuffer {
 public:
  void Resize(ElementType type, std::int64_t size) {
    bytes_.Resize(size * SizeOf(type));
    type_ = type;
    size_ = size;
  }

  Activations data() { return {bytes_.data(), type_}; }
  ConstActivations data() const { return {bytes_.data(), type_}; }
  std::int64_t size() const { return size_; }

 private:
  ByteBuffer bytes_;
  ElementType type_ = ElementType::kFp32;
  std::int64_t size_ = 0;
};

// `values` are `width` for each row: those of the samples `kept`, in ascending order, move to the front.
void KeepRows(Activations values, const TokenRows& rows, std::int64_t width, std::span<const std::int64_t> kept);

// Device-side operations on raw kernel memory.
void CopyFloats(const float* from, float* to, std::int64_t size);
void ZeroFloats(float* to, std::int64_t size);
void RoundToBfloat16(std::int64_t size, const float* from, Bfloat16* to);

}  // namespace spotlight
