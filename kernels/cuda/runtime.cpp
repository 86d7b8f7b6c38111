#include "kernels/cuda/runtime.hpp"

#include <vector>

#include "kernels/cuda/library.hpp"

namespace spotlight::cuda {

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
  static std::size_t size = 0;       // of it
  if (bytes > size || blocks.empty()) {
    void* block = nullptr;
    SPOTLIGHT_CUDA_CALL(cudaMalloc(&block, bytes));
    blocks.push_back(block);
    size = bytes;
  }
  return blocks.back();
}

}  // namespace spotlight::cuda
