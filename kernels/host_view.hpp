// Kernel memory for code that needs it in the host's: messages, files. Where a back end has host memory it is that
// memory itself, else a copy of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/operations.hpp"

namespace spotlight {

enum class HostAccess { kRead, kWrite, kReadAndWrite };

// Of `size` values at `memory`. What is written is there when the view ends.
template <typename T>
class HostView {
 public:
  HostView(T* memory, std::int64_t size, HostAccess access)
      : memory_(memory), size_(static_cast<std::size_t>(size)), access_(access) {
    if (ActiveOperations().host_memory) return;
    copy_.resize(size_);
    if (access != HostAccess::kWrite) CopyOut(copy_.data(), memory, size_ * sizeof(T));
  }
  ~HostView() {
    if (!copy_.empty() && access_ != HostAccess::kRead) CopyIn(memory_, copy_.data(), size_ * sizeof(T));
  }
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  T* data() { return copy_.empty() ? memory_ : copy_.data(); }
  std::span<T> span() { return {data(), size_}; }

 private:
  T* memory_;
  std::size_t size_;
  HostAccess access_;
  std::vector<T> copy_;
};

}  // namespace spotlight
