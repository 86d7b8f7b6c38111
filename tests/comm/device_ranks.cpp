// What trainers do in the tests of NCCL, see ranks.cpp. They connect where each has a GPU of its own; elsewhere they
// must agree on why not, and go on by MPI. Which of the two it was is printed.
#include <nccl.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/peer_memory.hpp"
#include "comm/device_communicator.hpp"
#include "comm/nccl_library.hpp"
#include "comm/sp_group.hpp"
#include "comm/trainer_group.hpp"
#include "kernels/cuda/runtime.hpp"
#include "tests/comm/ranks.hpp"

extern "C" const spotlight::DeviceConnector& SpotlightNccl();
extern "C" void SpotlightPeerMemory(std::unique_ptr<spotlight::PeerMemory>& memory);

namespace spotlight {
namespace {

#define EXPECT_CUDA(call) SPOTLIGHT_REQUIRE((call) == cudaSuccess, "CUDA")

// Sends one piece of each size to each of the others, gathers and broadcasts: the contents tell where they are from.
void CheckMessages(DeviceCommunicator& device) {
  const int n = device.size(), own = device.index();
  const auto value = [](int from, int to, std::size_t i) { return static_cast<int>(i % 1009) * 64 + from * 8 + to; };
  for (const std::size_t size : {std::size_t{1}, std::size_t{12345}, std::size_t{3} << 20}) {
    const auto count = static_cast<std::size_t>(n) * size;
    std::vector<int> host(count), expected(count), received(count);
    for (int p = 0; p < n; ++p) {
      for (std::size_t i = 0; i < size; ++i) {
        host[static_cast<std::size_t>(p) * size + i] = value(own, p, i);
        expected[static_cast<std::size_t>(p) * size + i] = p == own ? -1 : value(p, own, i);
      }
    }
    int *send = nullptr, *receive = nullptr;
    cudaStream_t queue = nullptr;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaMalloc(&send, count * sizeof(int)));
    EXPECT_CUDA(cudaMalloc(&receive, count * sizeof(int)));
    EXPECT_CUDA(cudaMemsetAsync(receive, 0xFF, count * sizeof(int), queue));
    EXPECT_CUDA(cudaMemcpyAsync(send, host.data(), count * sizeof(int), cudaMemcpyDefault, queue));
    std::vector<PeerBytes> peers;
    for (int p = 0; p < n; ++p) {
      const std::size_t at = static_cast<std::size_t>(p) * size;
      peers.push_back({send + at, size * sizeof(int), receive + at, size * sizeof(int)});
    }
    device.StartExchange(peers, queue);
    device.Follow(queue);
    device.Wait();
    EXPECT_CUDA(cudaMemcpyAsync(received.data(), receive, count * sizeof(int), cudaMemcpyDefault, queue));
    EXPECT_CUDA(cudaStreamSynchronize(queue));
    EXPECT(received == expected);

    device.StartGather(send, size * sizeof(int), queue);
    device.Follow(queue);
    device.StartBroadcast(receive, count * sizeof(int), n - 1, queue);
    device.Follow(queue);
    device.Wait();
    EXPECT_CUDA(cudaMemcpyAsync(host.data(), send, count * sizeof(int), cudaMemcpyDefault, queue));
    EXPECT_CUDA(cudaMemcpyAsync(received.data(), receive, count * sizeof(int), cudaMemcpyDefault, queue));
    EXPECT_CUDA(cudaStreamSynchronize(queue));
    for (int p = 0; p < n; ++p) {
      for (std::size_t i = 0; i < size; ++i) {
        EXPECT(host[static_cast<std::size_t>(p) * size + i] == value(p, p, i));
        EXPECT(received[static_cast<std::size_t>(p) * size + i] == (p == n - 1 ? -1 : value(p, n - 1, i)));
      }
    }
    EXPECT_CUDA(cudaFree(send));
    EXPECT_CUDA(cudaFree(receive));
    EXPECT_CUDA(cudaStreamDestroy(queue));
  }
}

int Gpus() {
  int gpus = 0;
  return cudaGetDeviceCount(&gpus) == cudaSuccess ? gpus : 0;
}

// All ranks but the coordinator train.
int Nccl(World& world) {
  world.AssignRoles(world.size() - 1);
  if (world.role() == Role::kCoordinator) return kExitFinished;
  EXPECT(!LoadNccl().version.empty());  // needs no driver
  const int gpus = Gpus();
  if (gpus > 0) EXPECT_CUDA(cudaSetDevice(world.trainer_index() % gpus));
  TrainerGroup group(world);
  for (int i = 0; i < 2; ++i) {  // and once more
    const std::string reason = group.Connect(&SpotlightNccl());
    if (group.index() == 0) std::printf("connected: %s\n", reason.empty() ? "yes" : reason.c_str());
    EXPECT(reason.empty() == (group.device() != nullptr));
    EXPECT(reason.empty() || gpus < group.size());
    EXPECT(gpus > 0 || reason.find("CUDA driver") != std::string::npos);
    if (group.device() != nullptr) CheckMessages(*group.device());
    EXPECT(group.SumDouble(1) == group.size());
  }
  return kExitFinished;
}

// Memory of the GPU, or of the host where there is none.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : gpu_(Gpus() > 0), host_(gpu_ ? 0 : bytes) {
    if (gpu_) EXPECT_CUDA(cudaMalloc(&device_, bytes + 1));
  }
  ~Memory() {
    if (gpu_) cudaFree(device_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() { return gpu_ ? device_ : host_.data(); }
  void Write(const std::vector<unsigned char>& values) {
    if (!gpu_) host_ = values;
    if (gpu_) EXPECT_CUDA(cudaMemcpyAsync(device_, values.data(), values.size(), cudaMemcpyDefault, Queue()));
  }
  std::vector<unsigned char> Read(std::size_t bytes) {
    if (!gpu_) return host_;
    std::vector<unsigned char> values(bytes);
    EXPECT_CUDA(cudaMemcpyAsync(values.data(), device_, bytes, cudaMemcpyDefault, Queue()));
    EXPECT_CUDA(cudaStreamSynchronize(Queue()));
    return values;
  }

 private:
  static cudaStream_t Queue() { return cuda::CurrentStream(); }
  bool gpu_;
  void* device_ = nullptr;
  std::vector<unsigned char> host_;
};

// Windows of this rank's GPU, in slots that take many pieces.
void UseIpc(World& world) {
  std::unique_ptr<PeerMemory> memory;
  std::string reason;
  const int gpus = Gpus();
  if (gpus > 0) EXPECT_CUDA(cudaSetDevice(world.local_index() % gpus));
  try {
    SpotlightPeerMemory(memory);
  } catch (const UserError& error) {
    reason = error.what();
  }
  EXPECT(world.UseWindows(std::move(memory), 100003) == reason.empty());
  EXPECT(gpus == 0 || reason.empty());
  if (world.rank() == 0) std::printf("windows: %s\n", reason.empty() ? "yes" : reason.c_str());
}

std::vector<int> Ranks(int count, int first) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) ranks[static_cast<std::size_t>(i)] = (first + i) % count;
  return ranks;
}

// Every byte received must be the one sent.
void CheckExchange(SpGroup& group, Index size) {
  const auto element = [](int from, int to, Index i) {
    return static_cast<unsigned char>(64 * from + 8 * to + i % 251);
  };
  const auto bytes = [=](int from, int to) { return size * (1 + (from + 2 * to) % 3); };
  const int own = group.index();
  std::vector<Index> send_bytes, receive_bytes;
  std::vector<unsigned char> send, expected;
  for (int p = 0; p < group.size(); ++p) {
    send_bytes.push_back(bytes(own, p));
    receive_bytes.push_back(bytes(p, own));
    for (Index i = 0; i < send_bytes.back(); ++i) send.push_back(element(own, p, i));
    for (Index i = 0; i < receive_bytes.back(); ++i) expected.push_back(element(p, own, i));
  }
  Memory sent(send.size()), received(expected.size());
  sent.Write(send);
  received.Write(std::vector<unsigned char>(expected.size(), 7));
  const bool by_windows = group.AllToAllOnDevice(sent.data(), send_bytes, received.data(), receive_bytes);
  EXPECT(by_windows == (Gpus() > 0));
  if (!by_windows) group.AllToAll(sent.data(), send_bytes, received.data(), receive_bytes);
  EXPECT(received.Read(expected.size()) == expected);
}

int Ipc(World& world) {
  UseIpc(world);
  for (int i = 0; i < 10; ++i) {  // groups in another order each time
    SpGroup group(world, Ranks(world.size(), i));
    for (const Index size : {0, 1, 1000, 700000}) CheckExchange(group, size);
  }
  return kExitFinished;
}

// Rank 2 dies, or does nothing for longer than the limit of 1 s, while the others exchange.
int IpcLoss(World& world, bool dies) {
  const auto start = std::chrono::steady_clock::now();
  try {
    UseIpc(world);
    SpGroup group(world, Ranks(world.size(), 0));
    CheckExchange(group, 1000);
    if (world.rank() == 2 && dies) std::raise(SIGKILL);
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    CheckExchange(group, 10);
  } catch (const PeerLost&) {
    EXPECT(world.rank() == 2 || std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
    if (Gpus() > 0) EXPECT_CUDA(cudaStreamSynchronize(cuda::CurrentStream()));  // nothing is stuck
    throw WorldEnding(kExitStopped);
  }
  return kExitFinished;
}
int IpcKilled(World& world) { return IpcLoss(world, true); }
int IpcSilent(World& world) { return IpcLoss(world, false); }

int Run(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  World world(&argc, &argv, scenario == "ipc_silent" ? std::chrono::seconds(1) : std::chrono::seconds(20));
  int code = kExitInternal;
  try {
    const std::map<std::string, Scenario> scenarios = {
        {"nccl", Nccl}, {"ipc", Ipc}, {"ipc_killed", IpcKilled}, {"ipc_silent", IpcSilent}};
    code = scenarios.at(scenario)(world);
  } catch (const WorldEnding& ending) {
    return world.Finish(ending.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return world.Finish(world.AgreeExit(code));
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) { return spotlight::Run(argc, argv); }
