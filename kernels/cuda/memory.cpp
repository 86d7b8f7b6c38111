// kernels/memory.hpp on a GPU. Copies are ordered with the kernels of CurrentStream(). Those to the device go through
// page-locked memory and do not wait for the kernels before them; those to the host are complete on return.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "kernels/cuda/library.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

// Page-locked memory in pieces that take turns: while the device reads one the host fills the next.
class Staging {
 public:
  static Staging& Get() {
    static Staging* const staging = new Staging;  // never destroyed: at the end the driver may be gone before
    return *staging;
  }

  void Send(void* to, const void* host, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    for (std::size_t done = 0; done < bytes; done += kPieceBytes) {
      Piece& piece = pieces_[next_++ % pieces_.size()];
      const std::size_t count = std::min(kPieceBytes, bytes - done);
      SPOTLIGHT_CUDA_CALL(cudaEventSynchronize(piece.sent));
      std::memcpy(piece.memory, static_cast<const std::byte*>(host) + done, count);
      SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(static_cast<std::byte*>(to) + done, piece.memory, count,
                                          cudaMemcpyHostToDevice, CurrentStream()));
      SPOTLIGHT_CUDA_CALL(cudaEventRecord(piece.sent, CurrentStream()));
    }
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  struct Piece {
    void* memory = nullptr;
    cudaEvent_t sent = nullptr;
  };

  Staging() {
    for (Piece& piece : pieces_) {
      SPOTLIGHT_CUDA_CALL(cudaMallocHost(&piece.memory, kPieceBytes));
      SPOTLIGHT_CUDA_CALL(cudaEventCreateWithFlags(&piece.sent, cudaEventDisableTiming));
    }
  }

  std::mutex mutex_;
  std::array<Piece, 4> pieces_;
  std::size_t next_ = 0;
};

// A recording would hold the address of memory whose contents change.
void RequireNoRecording() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  SPOTLIGHT_CUDA_CALL(cudaStreamIsCapturing(CurrentStream(), &status));
  SPOTLIGHT_REQUIRE(status == cudaStreamCaptureStatusNone, "a copy from or to the host among recorded launches");
}

}  // namespace

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
  RequireNoRecording();
  Staging::Get().Send(to, host, bytes);
}

void CopyOut(void* host, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  RequireNoRecording();
  SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, CurrentStream()));
  SPOTLIGHT_CUDA_CALL(cudaStreamSynchronize(CurrentStream()));
}

void ZeroMemory(void* to, std::size_t bytes) {
  if (bytes > 0) SPOTLIGHT_CUDA_CALL(cudaMemsetAsync(to, 0, bytes, CurrentStream()));
}

void* LaunchQueue() { return CurrentStream(); }

}  // namespace spotlight::cuda
