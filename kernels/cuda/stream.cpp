// kernels/stream.hpp on a GPU. Everything is launched on CurrentStream(); copies to the host are made beside it, on a
// stream of their own.
#include <nvtx3/nvToolsExt.h>

#include "kernels/cuda/library.hpp"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

// An event that has not been recorded counts as past. Who waits for one sleeps: steps take as long as a second.
class Event {
 public:
  explicit Event(unsigned flags) {
    SPOTLIGHT_CUDA_CALL(cudaEventCreateWithFlags(&event_, flags | cudaEventBlockingSync));
  }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  cudaEvent_t get() const { return event_; }
  void Record(cudaStream_t stream) { SPOTLIGHT_CUDA_CALL(cudaEventRecord(event_, stream)); }
  void HoldUp(cudaStream_t stream) const { SPOTLIGHT_CUDA_CALL(cudaStreamWaitEvent(stream, event_, 0)); }
  void Wait() const { SPOTLIGHT_CUDA_CALL(cudaEventSynchronize(event_)); }
  bool Past() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // it is not an error of the next launch
      return false;
    }
    SPOTLIGHT_CUDA_CALL(status);
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Lives as long as the process, like CurrentStream().
cudaStream_t CopyStream() {
  static const cudaStream_t stream = [] {
    cudaStream_t created = nullptr;
    SPOTLIGHT_CUDA_CALL(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    return created;
  }();
  return stream;
}

// By way of a copy on the device, which takes microseconds: kernels need not wait for the bus before they overwrite the
// values.
class DeviceCopy : public HostCopy {
 public:
  ~DeviceCopy() override { Release(); }

  void Reserve(std::int64_t size) override {
    if (size <= capacity_) return;
    Release();
    const std::size_t bytes = static_cast<std::size_t>(size) * sizeof(float);
    staged_ = AllocateMemory(bytes);
    SPOTLIGHT_CUDA_CALL(cudaMallocHost(&pinned_, bytes));
    capacity_ = size;
  }

  void Start(const float* from, std::int64_t size) override {
    Reserve(size);
    size_ = static_cast<std::size_t>(size);
    if (size == 0) return;
    const cudaStream_t kernels = CurrentStream(), copies = CopyStream();
    const std::size_t bytes = size_ * sizeof(float);
    there_.HoldUp(kernels);  // an earlier copy may still read what is staged
    SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(staged_, from, bytes, cudaMemcpyDefault, kernels));
    ready_.Record(kernels);
    ready_.HoldUp(copies);
    SPOTLIGHT_CUDA_CALL(cudaMemcpyAsync(pinned_, staged_, bytes, cudaMemcpyDeviceToHost, copies));
    there_.Record(copies);
  }

  bool Done() override { return there_.Past(); }

  std::span<const float> Values() override {
    there_.Wait();
    return {static_cast<const float*>(pinned_), size_};
  }

 private:
  void Release() {
    cudaEventSynchronize(there_.get());
    FreeMemory(staged_);
    cudaFreeHost(pinned_);
    staged_ = pinned_ = nullptr;
    capacity_ = 0;
    size_ = 0;
  }

  Event ready_{cudaEventDisableTiming}, there_{cudaEventDisableTiming};
  void *staged_ = nullptr, *pinned_ = nullptr;  // on the device, and page-locked on the host
  std::int64_t capacity_ = 0;
  std::size_t size_ = 0;
};

class EventTimer : public LaunchTimer {
 public:
  void Start() override { start_.Record(CurrentStream()); }
  void Stop() override { stop_.Record(CurrentStream()); }
  bool Done() override { return stop_.Past(); }
  double Seconds() override {
    stop_.Wait();
    float milliseconds = 0;
    SPOTLIGHT_CUDA_CALL(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()));
    return static_cast<double>(milliseconds) / 1000;
  }

 private:
  Event start_{cudaEventDefault}, stop_{cudaEventDefault};
};

class DeviceGraph : public LaunchGraph {
 public:
  explicit DeviceGraph(cudaGraph_t graph) { SPOTLIGHT_CUDA_CALL(cudaGraphInstantiate(&executable_, graph, 0)); }
  ~DeviceGraph() override {
    cudaStreamSynchronize(CurrentStream());  // it may be running
    cudaGraphExecDestroy(executable_);
  }
  void Replay() override { SPOTLIGHT_CUDA_CALL(cudaGraphLaunch(executable_, CurrentStream())); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};

}  // namespace

std::unique_ptr<HostCopy> MakeHostCopy() { return std::make_unique<DeviceCopy>(); }

std::unique_ptr<LaunchTimer> MakeLaunchTimer() { return std::make_unique<EventTimer>(); }

// Thread by thread: what waits for the device or makes memory meanwhile fails here, and not in other threads.
std::unique_ptr<LaunchGraph> Record(const std::function<void()>& launches) {
  SPOTLIGHT_CUDA_CALL(cudaStreamBeginCapture(CurrentStream(), cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  try {
    launches();
  } catch (...) {
    cudaStreamEndCapture(CurrentStream(), &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();  // of the capture that was broken: it is not an error of the next call
    throw;
  }
  SPOTLIGHT_CUDA_CALL(cudaStreamEndCapture(CurrentStream(), &graph));
  const std::unique_ptr<CUgraph_st, DestroyGraph> owner(graph);
  return std::make_unique<DeviceGraph>(graph);
}

void BeginPhase(const char* name) { nvtxRangePushA(name); }

void EndPhase() { nvtxRangePop(); }

}  // namespace spotlight::cuda
