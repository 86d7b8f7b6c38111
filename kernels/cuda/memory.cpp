// kernels/memory.hpp on a GPU. Copies are ordered with the kernels of CurrentStream(), and complete on return.
#include <fmt/format.h>

#include "kernels/cuda/library.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {

// Never of no bytes, so that every buffer has an address.
void* AllocateMemory(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is not an error of the next call
    constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw UserError(fmt::format(
        "the GPU's memory is too small: {:.2f} GiB more are wanted, {:.2f} of {:.1f} GiB are free. Smaller "
        "sampler/batch or train/micro_batch, model/recompute = true or model/precision = bf16 need less; --dry-run "
        "estimates it",
        static_cast<double>(bytes) / kGiB, static_cast<double>(free) / kGiB, static_cast<double>(total) / kGiB));
  }
  SPOTLIGHT_CUDA_CALL(status);
  return memory;
}

void FreeMemory(void* memory) { cudaFree(memory); }  // waits for kernels that may use it

void CopyIn(void* to, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(to, host, bytes, cudaMemcpyDefault, CurrentStream()));
  SPOTLIGHT_CUDA_CALL(cudaStreamSynchronize(CurrentStream()));
}

void CopyOut(void* host, const void* from, std::size_t bytes) { CopyIn(host, from, bytes); }

void ZeroMemory(void* to, std::size_t bytes) {
  if (bytes > 0) SPOTLIGHT_CUDA_CALL(cudaMemsetAsync(to, 0, bytes, CurrentStream()));
}

void* LaunchQueue() { return CurrentStream(); }

}  // namespace spotlight::cuda
