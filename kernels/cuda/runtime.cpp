#include "kernels/cuda/runtime.hpp"

#include "kernels/cuda/library.hpp"
#include "kernels/cuda/scratch.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constinit ScratchBlock scratch(AllocateMemory, FreeMemory);  // never freed: at the end the driver may be gone before

}  // namespace

Stream CurrentStream() {
  static const Stream stream = [] {
    cudaStream_t created = nullptr;
    SPOTLIGHT_CUDA_CALL(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    return created;
  }();
  return stream;
}

void* ScratchBytes(std::size_t bytes) { return scratch.Reserve(bytes); }

std::size_t ScratchSize() { return scratch.size(); }

}  // namespace spotlight::cuda
