// The plug-in's entry (kernels/back_end.hpp): finds the GPU, and hands out the operations.
#include <fmt/format.h>

#include "kernels/back_end.hpp"
#include "kernels/cuda/library.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

constexpr int kOldestCapability = 80;  // major and minor of an A100: bfloat16 on tensor cores

std::string CudaVersion(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// Its number on this node.
int TakeGpu(const BackEndChoice& choice) {
  int driver = 0, count = 0;
  cudaDriverGetVersion(&driver);
  const cudaError_t status = cudaGetDeviceCount(&count);  // leaves `count` alone if it fails
  if (status == cudaErrorInsufficientDriver) {
    throw UserError(fmt::format("the NVIDIA driver is for CUDA {} at most, this build needs {}: update the driver",
                                CudaVersion(driver), CudaVersion(CUDART_VERSION)));
  }
  if (status != cudaSuccess) throw UserError(FailureOf(status));
  if (count == 0) throw UserError("there is a driver, but no GPU that this process may use (CUDA_VISIBLE_DEVICES?)");
  if (choice.gpu >= count) {
    throw UserError(fmt::format("device/gpu = {}: this node has GPUs 0 to {}", choice.gpu, count - 1));
  }
  const int gpu = choice.gpu >= 0 ? choice.gpu : choice.local_rank % count;
  SPOTLIGHT_CUDA_CALL(cudaSetDevice(gpu));
  return gpu;
}

}  // namespace
}  // namespace spotlight::cuda

extern "C" const spotlight::Operations& SpotlightCudaBackEnd(const spotlight::BackEndChoice& choice,
                                                             std::string& description) {
  using spotlight::UserError;
  const int gpu = spotlight::cuda::TakeGpu(choice);
  cudaDeviceProp properties{};
  SPOTLIGHT_CUDA_CALL(cudaGetDeviceProperties(&properties, gpu));
  if (10 * properties.major + properties.minor < spotlight::cuda::kOldestCapability) {
    throw UserError(fmt::format("GPU {} ({}) has compute capability {}.{}; 8.0 (A100) or later is needed", gpu,
                                properties.name, properties.major, properties.minor));
  }
  if (properties.sharedMemPerBlockOptin < spotlight::cuda::kMostSharedBytes) {
    throw UserError(fmt::format(
        "GPU {} ({}) gives a block of threads {} KiB of shared memory; {} are needed: A100, H100, H200 and B200 have "
        "them",
        gpu, properties.name, properties.sharedMemPerBlockOptin / 1024, spotlight::cuda::kMostSharedBytes / 1024));
  }
  description = fmt::format("GPU {} ({}, compute capability {}.{}, {:.0f} GiB)", gpu, properties.name, properties.major,
                            properties.minor, static_cast<double>(properties.totalGlobalMem) / (1 << 30));
  static constexpr spotlight::Operations kOperations{
      .name = "cuda",
      .host_memory = false,
      .bf16 = true,
      .records = true,
#define SPOTLIGHT_OPERATION(Name) .Name = &spotlight::cuda::Name,
#include "kernels/operations.inc"
#undef SPOTLIGHT_OPERATION
  };
  return kOperations;
}
