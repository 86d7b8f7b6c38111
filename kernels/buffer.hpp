// Memory that kernels work on. Host memory for the CPU back end; callers never assume so: they
// fill and read buffers through CopyFromHost and CopyToHost only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace spotlight {

// Owns `size` floats, 64-byte aligned. Contents are undefined after Resize. Move-only.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size) { Resize(size); }

  // Keeps the memory if it is large enough, so that a loop with a varying batch allocates once.
  void Resize(std::int64_t size);
  void Zero();

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

  void CopyFromHost(std::span<const float> host);  // host.size() <= size()
  void CopyToHost(std::span<float> host) const;

 private:
  struct Free {
    void operator()(float* pointer) const;
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
  std::int64_t capacity_ = 0;
};

// Of a buffer of `rows` rows of equal size, row `to` becomes a copy of row `from`.
void CopyRow(Buffer& buffer, std::int64_t rows, std::int64_t from, std::int64_t to);

// Device-side operations on raw kernel memory.
void CopyFloats(const float* from, float* to, std::int64_t size);
void ZeroFloats(float* to, std::int64_t size);

}  // namespace spotlight
