// tests/bench/device_meter.hpp by the CUDA runtime and cuBLASLt.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/bench/device_meter.hpp"

namespace spotlight {
namespace {

void Check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
void Check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
  }
}
#define CHECK_CALL(call) Check(call, #call)

class CudaMeter : public DeviceMeter {
 public:
  explicit CudaMeter(cudaStream_t stream) : stream_(stream) {
    int number = 0;
    CHECK_CALL(cudaGetDevice(&number));
    CHECK_CALL(cudaGetDeviceProperties(&properties_, number));
    CHECK_CALL(cudaEventCreate(&start_));
    CHECK_CALL(cudaEventCreate(&stop_));
  }

  std::string device() const override { return properties_.name; }
  double cache_bytes() const override { return properties_.l2CacheSize; }

  void Start() override { CHECK_CALL(cudaEventRecord(start_, stream_)); }
  double Stop() override {
    CHECK_CALL(cudaEventRecord(stop_, stream_));
    CHECK_CALL(cudaEventSynchronize(stop_));
    float milliseconds = 0;
    CHECK_CALL(cudaEventElapsedTime(&milliseconds, start_, stop_));
    return 1e-3 * static_cast<double>(milliseconds);
  }

  void Copy(void* to, const void* from, std::size_t bytes) override {
    CHECK_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }

  // The best of what the heuristic proposes, each warm and several times in a row.
  double ProductSeconds(std::int64_t side, const void* a, const void* b, void* c) override {
    constexpr int kCandidates = 8, kRepeats = 10;
    constexpr std::size_t kWorkspace = std::size_t{64} << 20;
    void* workspace = nullptr;
    CHECK_CALL(cudaMalloc(&workspace, kWorkspace));
    cublasLtHandle_t handle = nullptr;
    CHECK_CALL(cublasLtCreate(&handle));
    // Column-major: C = op(A) B with A transposed, as a linear layer has it.
    cublasLtMatmulDescOpaque_t operation;
    CHECK_CALL(cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    CHECK_CALL(cublasLtMatmulDescSetAttribute(&operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    cublasLtMatrixLayoutOpaque_t layout;
    const auto size = static_cast<std::uint64_t>(side);
    CHECK_CALL(cublasLtMatrixLayoutInit(&layout, CUDA_R_16BF, size, size, side));
    cublasLtMatmulPreferenceOpaque_t preference;
    CHECK_CALL(cublasLtMatmulPreferenceInit(&preference));
    CHECK_CALL(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                                    sizeof kWorkspace));
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
    int count = 0;
    CHECK_CALL(cublasLtMatmulAlgoGetHeuristic(handle, &operation, &layout, &layout, &layout, &layout, &preference,
                                              kCandidates, candidates.data(), &count));
    const float one = 1, zero = 0;
    double best = 0;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t& algorithm = candidates[static_cast<std::size_t>(i)].algo;
      const auto product = [&] {
        return cublasLtMatmul(handle, &operation, &one, a, &layout, b, &layout, &zero, c, &layout, c, &layout,
                              &algorithm, workspace, kWorkspace, stream_);
      };
      if (product() != CUBLAS_STATUS_SUCCESS) continue;
      Start();
      for (int repeat = 0; repeat < kRepeats; ++repeat) CHECK_CALL(product());
      const double seconds = Stop() / kRepeats;
      best = best == 0 ? seconds : std::min(best, seconds);
    }
    CHECK_CALL(cublasLtDestroy(handle));
    CHECK_CALL(cudaFree(workspace));
    if (best == 0) throw std::runtime_error("cuBLASLt has no product of bf16 matrices");
    return best;
  }

  double used_bytes() const override { return total_bytes() - Memory().first; }
  double total_bytes() const override { return Memory().second; }

 private:
  static std::pair<double, double> Memory() {
    std::size_t free = 0, total = 0;
    CHECK_CALL(cudaMemGetInfo(&free, &total));
    return {static_cast<double>(free), static_cast<double>(total)};
  }

  cudaStream_t stream_;
  cudaDeviceProp properties_{};
  cudaEvent_t start_ = nullptr, stop_ = nullptr;  // live as long as the process
};

}  // namespace
}  // namespace spotlight

extern "C" spotlight::DeviceMeter* SpotlightCudaMeter(void* stream) {
  return new spotlight::CudaMeter(static_cast<cudaStream_t>(stream));
}
