#include "kernels/cuda/library.hpp"

namespace spotlight::cuda {

std::string FailureOf(cudaError_t status) {
  if (status == cudaSuccess) return "";
  return std::string("CUDA: ") + cudaGetErrorName(status) + ", " + cudaGetErrorString(status);
}

std::string FailureOf(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) return "";
  return std::string("cuBLASLt: ") + cublasLtGetStatusName(status) + ", " + cublasLtGetStatusString(status);
}

std::string FailureOf(cudnnStatus_t status) {
  if (status == CUDNN_STATUS_SUCCESS) return "";
  std::array<char, 1024> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  return std::string("cuDNN: ") + cudnnGetErrorString(status) + ", " + details.data();
}

cublasLtHandle_t CublasLtHandle() {
  static const cublasLtHandle_t handle = [] {
    cublasLtHandle_t created = nullptr;
    SPOTLIGHT_CUDA_CALL(cublasLtCreate(&created));
    return created;
  }();
  return handle;
}

cudnnHandle_t CudnnHandle() {
  thread_local const cudnnHandle_t handle = [] {
    cudnnHandle_t created = nullptr;
    SPOTLIGHT_CUDA_CALL(cudnnCreate(&created));
    return created;
  }();
  SPOTLIGHT_CUDA_CALL(cudnnSetStream(handle, CurrentStream()));
  return handle;
}

}  // namespace spotlight::cuda
