// base/peer_memory.hpp on GPUs: windows by CUDA IPC, copies on CurrentStream() between GPUs or processes of one GPU,
// and flags in host memory that the stream itself writes and waits for (stream memory operations). A stream that waits
// occupies no multiprocessor, so several processes may share a GPU. Windows and mappings live as long as the process:
// to free one that others have opened would be an error.
#include "base/peer_memory.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <cstring>
#include <map>

#include "kernels/cuda/library.hpp"

namespace spotlight::cuda {
namespace {

constexpr unsigned kDriverApi = 12000;  // the version whose types are used

// A function of the driver, which is not linked.
template <typename Function>
Function DriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &function, kDriverApi, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();  // it is not an error of the next call
    throw UserError(fmt::format("the driver has no {}", name));
  }
  return reinterpret_cast<Function>(function);
}

class IpcPeerMemory : public PeerMemory {
 public:
  IpcPeerMemory()
      : wait_(DriverFunction<decltype(wait_)>("cuStreamWaitValue64")),
        write_(DriverFunction<decltype(write_)>("cuStreamWriteValue64")) {
    int gpu = 0, able = 0;
    SPOTLIGHT_CUDA_CALL(cudaGetDevice(&gpu));
    const auto attribute = DriverFunction<CUresult (*)(int*, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute");
    const auto device_of = DriverFunction<CUresult (*)(CUdevice*, int)>("cuDeviceGet");
    CUdevice device = 0;
    if (device_of(&device, gpu) != CUDA_SUCCESS ||
        attribute(&able, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) != CUDA_SUCCESS || able == 0) {
      throw UserError("the GPU's streams cannot wait for flags");
    }
  }

  void UseFlags(void* memory, std::size_t bytes) override {
    constexpr std::size_t kPage = 4096;
    bytes = (bytes + kPage - 1) / kPage * kPage;
    cudaError_t status = cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
    void* on_device = nullptr;
    if (status == cudaSuccess) status = cudaHostGetDevicePointer(&on_device, memory, 0);
    if (status != cudaSuccess) {
      cudaGetLastError();
      throw UserError(fmt::format("the node's flags cannot be mapped: {}", cudaGetErrorString(status)));
    }
    flags_ = static_cast<std::byte*>(memory);
    device_flags_ = reinterpret_cast<CUdeviceptr>(on_device);
  }

  Handle MakeWindow(std::size_t bytes) override {
    void* memory = nullptr;
    cudaIpcMemHandle_t exported{};
    cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaSuccess) status = cudaIpcGetMemHandle(&exported, memory);
    if (status != cudaSuccess) {
      cudaGetLastError();
      cudaFree(memory);
      throw UserError(fmt::format("a window of {} MiB: {}", bytes >> 20, cudaGetErrorString(status)));
    }
    own_ = static_cast<std::byte*>(memory);
    Handle handle{};
    static_assert(sizeof(exported) <= sizeof(handle));
    std::memcpy(handle.data(), &exported, sizeof(exported));
    return handle;
  }

  bool OpenWindow(int peer, const Handle& handle) override {
    if (peers_.contains(peer)) return true;
    cudaIpcMemHandle_t exported{};
    std::memcpy(&exported, handle.data(), sizeof(exported));
    void* memory = nullptr;
    if (cudaIpcOpenMemHandle(&memory, exported, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    peers_[peer] = static_cast<std::byte*>(memory);
    return true;
  }

  void Push(int peer, std::size_t offset, const void* from, std::size_t bytes) override {
    Copy(from, peers_.at(peer) + offset, bytes);
  }
  void Take(std::size_t offset, void* to, std::size_t bytes) override { Copy(own_ + offset, to, bytes); }
  void Copy(const void* from, void* to, std::size_t bytes) override {
    SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, CurrentStream()));
  }

  // Without the flag that drops it, the write comes after a fence for the whole system.
  void Raise(Flag& flag, std::uint64_t value) override {
    const CUresult result = write_(CurrentStream(), OnDevice(flag), value, CU_STREAM_WRITE_VALUE_DEFAULT);
    SPOTLIGHT_REQUIRE(result == CUDA_SUCCESS, fmt::format("cuStreamWriteValue64: {}", static_cast<int>(result)));
  }
  void Await(const Flag& flag, std::uint64_t value) override {
    const CUresult result = wait_(CurrentStream(), OnDevice(flag), value, CU_STREAM_WAIT_VALUE_GEQ);
    SPOTLIGHT_REQUIRE(result == CUDA_SUCCESS, fmt::format("cuStreamWaitValue64: {}", static_cast<int>(result)));
  }

  bool Done() override {
    const cudaError_t status = cudaStreamQuery(CurrentStream());
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // it is not an error of the next launch
      return false;
    }
    SPOTLIGHT_CUDA_CALL(status);
    return true;
  }

 private:
  CUdeviceptr OnDevice(const Flag& flag) const {
    return device_flags_ + static_cast<CUdeviceptr>(reinterpret_cast<const std::byte*>(&flag) - flags_);
  }

  CUresult (*wait_)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
  CUresult (*write_)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
  std::byte* flags_ = nullptr;
  CUdeviceptr device_flags_ = 0;
  std::byte* own_ = nullptr;
  std::map<int, std::byte*> peers_;
};

}  // namespace
}  // namespace spotlight::cuda

extern "C" void SpotlightPeerMemory(std::unique_ptr<spotlight::PeerMemory>& memory) {
  memory = std::make_unique<spotlight::cuda::IpcPeerMemory>();
}
