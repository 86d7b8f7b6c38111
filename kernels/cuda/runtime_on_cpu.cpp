#include <memory>
#include <new>

#include "kernels/cuda/runtime.hpp"

namespace spotlight::cuda {
namespace {

constexpr std::align_val_t kAlignment{256};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
};

}  // namespace

Stream CurrentStream() { return nullptr; }

// New memory each time, so that a sanitizer sees whoever reads beyond what was asked for or after the next call.
void* ScratchBytes(std::size_t bytes) {
  thread_local std::unique_ptr<std::byte, Free> scratch;
  scratch.reset(static_cast<std::byte*>(::operator new[](bytes, kAlignment)));
  return scratch.get();
}

}  // namespace spotlight::cuda
