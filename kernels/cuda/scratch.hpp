// The one block of memory behind ScratchBytes (runtime.hpp).
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/recordings.hpp"

namespace spotlight::cuda {

// Grows to the largest size asked for, in whole units, so that prompts of many lengths make it grow a few times and not
// at each new one. The smaller block goes first: both together might not fit. Recordings that may hold its address are
// made anew.
class ScratchBlock {
 public:
  static constexpr std::size_t kUnit = std::size_t{64} << 20;

  constexpr ScratchBlock(void* (*allocate)(std::size_t), void (*free)(void*)) : allocate_(allocate), free_(free) {}

  // Whatever `allocate` throws leaves no block; the next call tries again.
  void* Reserve(std::size_t bytes) {
    if (memory_ != nullptr && bytes <= size_) return memory_;
    if (memory_ != nullptr) {
      NoteFreed(memory_);
      size_ = 0;
      free_(std::exchange(memory_, nullptr));
    }
    const std::size_t wanted = (bytes + kUnit - 1) / kUnit * kUnit;
    memory_ = allocate_(wanted);
    size_ = wanted;
    NoteAllocated(memory_);
    return memory_;
  }
  std::size_t size() const { return size_; }

 private:
  void* (*allocate_)(std::size_t);
  void (*free_)(void*);
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace spotlight::cuda
