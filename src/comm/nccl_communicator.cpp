#include "comm/nccl_communicator.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/peer_lost.hpp"

namespace spotlight {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kEnding{5};  // in order; then it is aborted
constexpr seconds kAborting{10};

bool Accepted(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

// Between two looks: first only the core is yielded, because most exchanges are short.
void Pause(std::chrono::steady_clock::duration waited) {
  if (waited < milliseconds(2)) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(microseconds(50));
  }
}

}  // namespace

NcclCommunicator::Event NcclCommunicator::MakeEvent() {
  cudaEvent_t event = nullptr;
  const cudaError_t status = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  if (status != cudaSuccess) throw UserError(fmt::format("an event: {}", cudaGetErrorString(status)));
  return Event(event);
}

NcclCommunicator::NcclCommunicator(const NcclLibrary& nccl, const std::string& id, int index, int size,
                                   DeviceWaits waits)
    : nccl_(nccl), index_(index), size_(size), waits_(std::move(waits)), exceptions_(std::uncaught_exceptions()) {
  cudaStream_t stream = nullptr;
  const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status != cudaSuccess) throw UserError(fmt::format("a stream: {}", cudaGetErrorString(status)));
  stream_.reset(stream);
  before_ = MakeEvent();
  done_ = MakeEvent();

  ncclUniqueId unique{};
  SPOTLIGHT_REQUIRE(id.size() == sizeof(unique), "an id of NCCL");
  std::memcpy(&unique, id.data(), sizeof(unique));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = nccl_.CommInitRankConfig(&comm_, size, unique, index, &config);
  try {
    if (!Accepted(result)) Fail("starting", result);
    AwaitFor(waits_.connect_limit, "starting", [](ncclResult_t state) { return state == ncclSuccess; });
  } catch (const PeerLost& loss) {
    waits_.look_at_peers();  // where nobody is lost there are other ways than NCCL
    throw UserError(loss.what());
  } catch (const InternalError& error) {
    throw UserError(error.what());
  }
}

NcclCommunicator::~NcclCommunicator() {
  if (std::uncaught_exceptions() > exceptions_) Abort();
  if (comm_ == nullptr) return;
  try {
    const ncclResult_t result = nccl_.CommFinalize(comm_);
    if (!Accepted(result)) Fail("ending", result);
    AwaitFor(kEnding, "ending", [](ncclResult_t state) { return state == ncclSuccess; });
    nccl_.CommDestroy(comm_);
  } catch (const std::exception&) {  // it has been aborted: nothing was in flight
  }
}

void NcclCommunicator::StartExchange(std::span<const PeerBytes> peers, void* queue) {
  SPOTLIGHT_REQUIRE(static_cast<int>(peers.size()) == size_, "one entry per rank");
  Start(queue, [&] {
    ncclResult_t result = ncclSuccess;
    for (int step = 1; step < size_; ++step) {
      const int to = (index_ + step) % size_, from = (index_ + size_ - step) % size_;
      const PeerBytes& out = peers[static_cast<std::size_t>(to)];
      const PeerBytes& in = peers[static_cast<std::size_t>(from)];
      if (Accepted(result) && out.send_bytes > 0) {
        result = nccl_.Send(out.send, out.send_bytes, ncclInt8, to, comm_, stream_.get());
      }
      if (Accepted(result) && in.receive_bytes > 0) {
        result = nccl_.Recv(in.receive, in.receive_bytes, ncclInt8, from, comm_, stream_.get());
      }
    }
    return result;
  });
}

void NcclCommunicator::StartGather(void* memory, std::size_t piece_bytes, void* queue) {
  const auto* own = static_cast<const std::byte*>(memory) + static_cast<std::size_t>(index_) * piece_bytes;
  Start(queue, [&] { return nccl_.AllGather(own, memory, piece_bytes, ncclInt8, comm_, stream_.get()); });
}

void NcclCommunicator::StartBroadcast(void* memory, std::size_t bytes, int root, void* queue) {
  Start(queue, [&] { return nccl_.Broadcast(memory, memory, bytes, ncclInt8, root, comm_, stream_.get()); });
}

void NcclCommunicator::Start(void* queue, const std::function<ncclResult_t()>& operations) {
  SPOTLIGHT_REQUIRE(comm_ != nullptr, "a communicator that has failed");
  CheckCuda(cudaEventRecord(before_.get(), static_cast<cudaStream_t>(queue)), "the caller's launches");
  CheckCuda(cudaStreamWaitEvent(stream_.get(), before_.get(), 0), "the caller's launches");
  ncclResult_t result = nccl_.GroupStart();
  if (Accepted(result)) {
    result = operations();
    const ncclResult_t end = nccl_.GroupEnd();  // also of a group that is incomplete
    if (Accepted(result)) result = end;
  }
  if (!Accepted(result)) Fail("exchanging", result);
  // A thread of NCCL's launches it, and an event recorded earlier would not be behind it.
  AwaitFor(waits_.limit, "exchanging", [](ncclResult_t state) { return state == ncclSuccess; });
  CheckCuda(cudaEventRecord(done_.get(), stream_.get()), "an exchange");
}

void NcclCommunicator::Follow(void* queue) {
  CheckCuda(cudaStreamWaitEvent(static_cast<cudaStream_t>(queue), done_.get(), 0), "an exchange");
}

void NcclCommunicator::Wait() {
  SPOTLIGHT_REQUIRE(comm_ != nullptr, "a communicator that has failed");
  AwaitFor(waits_.limit, "exchanging", [this](ncclResult_t) {
    const cudaError_t status = cudaEventQuery(done_.get());
    if (status != cudaErrorNotReady) CheckCuda(status, "an exchange");
    return status == cudaSuccess;
  });
}

void NcclCommunicator::AwaitFor(milliseconds limit, const char* what, const std::function<bool(ncclResult_t)>& done) {
  constexpr milliseconds kBetweenLooks{1};
  const Clock::time_point start = Clock::now();
  for (Clock::time_point look = start + kBetweenLooks;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = nccl_.CommGetAsyncError(comm_, &state);
    if (!Accepted(result)) Fail(what, result);
    if (!Accepted(state)) Fail(what, state);
    if (done(state)) return;
    const Clock::time_point now = Clock::now();
    if (now >= look) {
      look = now + kBetweenLooks;
      try {
        waits_.look_at_peers();
      } catch (...) {
        Abort();
        throw;
      }
    }
    if (now - start > limit) {
      Abort();
      throw PeerLost(fmt::format("{}, {}: a trainer was silent for {:.1f} s [{}]", name(), what,
                                 std::chrono::duration<double>(now - start).count(), ProcessName()));
    }
    Pause(now - start);
  }
}

// Which results a lost peer causes, is not documented: all that are not of this GPU, or of a wrong call.
void NcclCommunicator::Fail(const char* what, ncclResult_t result) {
  const char* const details = nccl_.GetLastError(comm_);
  const std::string message = fmt::format("{}, {}: {} ({}) [{}]", name(), what, nccl_.GetErrorString(result),
                                          details == nullptr ? "" : details, ProcessName());
  Abort();
  if (result == ncclUnhandledCudaError || result == ncclInvalidArgument || result == ncclInvalidUsage) {
    throw InternalError(message);
  }
  throw PeerLost(message);
}

void NcclCommunicator::CheckCuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  Abort();
  throw InternalError(fmt::format("{}, {}: {} [{}]", name(), what, cudaGetErrorString(status), ProcessName()));
}

// Ends what runs on the GPU, too. NCCL waits for its own threads, which may hang with a peer: after a while it is left
// to them.
void NcclCommunicator::Abort() noexcept {
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  try {
    auto ended = std::make_shared<std::promise<void>>();
    std::future<void> end = ended->get_future();
    std::thread([abort = nccl_.CommAbort, comm, ended] {
      abort(comm);
      ended->set_value();
    }).detach();
    end.wait_for(kAborting);
    const Clock::time_point start = Clock::now();
    while (cudaStreamQuery(stream_.get()) == cudaErrorNotReady && Clock::now() - start < kAborting) {
      Pause(Clock::now() - start);
    }
  } catch (const std::exception&) {  // no thread to be had: the process is about to end anyway
  }
}

namespace {

std::string Gpu() {
  LoadNccl();
  int device = 0;
  std::array<char, 32> name{};
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetPCIBusId(name.data(), static_cast<int>(name.size()), device);
  if (status != cudaSuccess) throw UserError(fmt::format("its GPU has no name: {}", cudaGetErrorString(status)));
  return name.data();
}

std::string MakeId() {
  ncclUniqueId id{};
  const ncclResult_t result = LoadNccl().GetUniqueId(&id);
  if (result != ncclSuccess) {
    throw UserError(
        fmt::format("NCCL cannot start: {} ({})", LoadNccl().GetErrorString(result), LoadNccl().GetLastError(nullptr)));
  }
  return {reinterpret_cast<const char*>(&id), sizeof(id)};
}

std::unique_ptr<DeviceCommunicator> Connect(const std::string& id, int index, int size, DeviceWaits waits) {
  return std::make_unique<NcclCommunicator>(LoadNccl(), id, index, size, std::move(waits));
}

}  // namespace
}  // namespace spotlight

extern "C" const spotlight::DeviceConnector& SpotlightNccl() {
  static constexpr spotlight::DeviceConnector kConnector{&spotlight::Gpu, &spotlight::MakeId, &spotlight::Connect};
  return kConnector;
}
