#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>

#include "kernels/cuda/recorder_on_cpu.hpp"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/scratch.hpp"

namespace spotlight::cuda {
namespace {

constexpr std::align_val_t kAlignment{256};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
};

std::atomic<std::size_t> scratch_size = 0;

// What a device does when scratch memory grows; a byte stands for its block.
void GrowAsOnADevice(std::size_t bytes) {
  static constinit std::mutex mutex;
  static constinit ScratchBlock block([](std::size_t) { return ::operator new(1); },
                                      [](void* memory) { ::operator delete(memory); });
  const std::scoped_lock lock(mutex);
  block.Reserve(bytes);
}

}  // namespace

Stream CurrentStream() { return nullptr; }

// New memory each time, so that a sanitizer sees whoever reads beyond what was asked for or after the next call.
void* ScratchBytes(std::size_t bytes) {
  GrowAsOnADevice(bytes);
  thread_local std::shared_ptr<std::byte> scratch;
  scratch = std::shared_ptr<std::byte>(static_cast<std::byte*>(::operator new[](bytes, kAlignment)), Free());
  if (on_cpu::IsRecording()) on_cpu::Keep(scratch);
  scratch_size = std::max(scratch_size.load(), bytes);
  return scratch.get();
}

std::size_t ScratchSize() { return scratch_size; }

}  // namespace spotlight::cuda
