#include "kernels/cuda/runtime.hpp"

#include <vector>

#include "kernels/cuda/library.hpp"

namespace spotlight::cuda {
namespace {

std::size_t scratch_size = 0;

}  // namespace

Stream CurrentStream() {
  static const Stream stream = [] {
    cudaStream_t created = nullptr;
    SPOTLIGHT_CUDA_CALL(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    return created;
  }();
  return stream;
}

void* ScratchBytes(std::size_t bytes) {
  static std::vector<void*> blocks;  // the last one is in use
  if (bytes > scratch_size || blocks.empty()) {
    void* block = nullptr;
    SPOTLIGHT_CUDA_CALL(cudaMalloc(&block, bytes));
    blocks.push_back(block);
    scratch_size = bytes;
  }
  return blocks.back();
}

std::size_t ScratchSize() { return scratch_size; }

}  // namespace spotlight::cuda
