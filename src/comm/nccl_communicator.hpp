// comm/device_communicator.hpp by NCCL. Compiled into the CUDA plug-in, and into tests.
//
// The communicator is non-blocking: no call of NCCL waits for a peer, and every wait here is a loop that looks at
// NCCL's state, at the GPU's and at the peers, until the limit. What NCCL does runs on a stream of its own, so that
// kernels of the caller's run beside it. A failure of NCCL or of this GPU that no peer has caused is an InternalError,
// or, while the communicator is made, a UserError.
#pragma once

#include <nccl.h>

#include <exception>
#include <memory>
#include <string>

#include "comm/device_communicator.hpp"
#include "comm/nccl_library.hpp"

namespace spotlight {

class NcclCommunicator : public DeviceCommunicator {
 public:
  // Collective over `size` ranks with the same id. UserError: it cannot be made, or not in time.
  NcclCommunicator(const NcclLibrary& nccl, const std::string& id, int index, int size, DeviceWaits waits);
  ~NcclCommunicator() override;

  std::string name() const override { return "NCCL " + nccl_.version; }
  int size() const override { return size_; }
  int index() const override { return index_; }
  void StartExchange(std::span<const PeerBytes> peers, void* queue) override;
  void StartGather(void* memory, std::size_t piece_bytes, void* queue) override;
  void StartBroadcast(void* memory, std::size_t bytes, int root, void* queue) override;
  void Follow(void* queue) override;
  void Wait() override;

 private:
  using Clock = std::chrono::steady_clock;
  struct StreamEnd {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  struct EventEnd {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<CUevent_st, EventEnd>;

  static Event MakeEvent();
  // operations() enqueues what NCCL makes one launch of.
  void Start(void* queue, const std::function<ncclResult_t()>& operations);
  // Until done(NCCL's state).
  void AwaitFor(std::chrono::milliseconds limit, const char* what, const std::function<bool(ncclResult_t)>& done);
  [[noreturn]] void Fail(const char* what, ncclResult_t result);
  void CheckCuda(cudaError_t status, const char* what);
  void Abort() noexcept;

  const NcclLibrary& nccl_;
  const int index_, size_;
  const DeviceWaits waits_;
  const int exceptions_;  // in flight when this was made
  std::unique_ptr<CUstream_st, StreamEnd> stream_;
  Event before_, done_;
  ncclComm_t comm_ = nullptr;  // null: it has failed
};

}  // namespace spotlight
