// What the files that call NVIDIA's libraries share: calls that fail with the library's own words, the handles, and
// scratch memory in pieces.
//
//   SPOTLIGHT_CUDA_CALL(cudaMemsetAsync(...));
//
// throws InternalError with file, line, the call and what the library says if the call does not succeed. It takes calls
// of the CUDA runtime, cuBLASLt and cuDNN.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <string>

#include "base/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace spotlight::cuda {

// What the library says of a status; empty if it is success.
std::string FailureOf(cudaError_t status);
std::string FailureOf(cublasStatus_t status);
std::string FailureOf(cudnnStatus_t status);

#define SPOTLIGHT_CUDA_CALL(call)                                                           \
  do {                                                                                      \
    if (const std::string failure = ::spotlight::cuda::FailureOf(call); !failure.empty()) { \
      ::spotlight::FailRequire(#call, __FILE__, __LINE__, failure);                         \
    }                                                                                       \
  } while (false)

// Of this process: any thread may use it, and the stream is named with each product.
cublasLtHandle_t CublasLtHandle();
// Of the calling thread, set to CurrentStream(). Both live as long as the process: at its end the driver may be gone
// before they could be destroyed.
cudnnHandle_t CudnnHandle();

// One piece of scratch memory (runtime.hpp) for each of `bytes`, aligned to 256; all are good until the next call.
template <std::size_t Count>
std::array<std::byte*, Count> ScratchPieces(const std::array<std::size_t, Count>& bytes) {
  constexpr std::size_t kAlignment = 256;
  std::array<std::size_t, Count> first{};
  std::size_t total = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    first[i] = total;
    total += (bytes[i] + kAlignment - 1) / kAlignment * kAlignment;
  }
  std::array<std::byte*, Count> pieces{};
  std::byte* memory = Scratch<std::byte>(total);
  for (std::size_t i = 0; i < Count; ++i) pieces[i] = memory + first[i];
  return pieces;
}

}  // namespace spotlight::cuda
