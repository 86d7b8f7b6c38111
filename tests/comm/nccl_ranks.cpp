// What trainers do in the tests of NCCL, see ranks.cpp. They connect where each has a GPU of its own; elsewhere they
// must agree on why not, and go on by MPI. Which of the two it was is printed.
#include <nccl.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "base/sequence_group.hpp"
#include "comm/device_communicator.hpp"
#include "comm/nccl_library.hpp"
#include "comm/trainer_group.hpp"
#include "tests/comm/ranks.hpp"

extern "C" const spotlight::DeviceConnector& SpotlightNccl();

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

// All ranks but the coordinator train.
int Nccl(World& world) {
  world.AssignRoles(world.size() - 1);
  if (world.role() == Role::kCoordinator) return kExitFinished;
  EXPECT(!LoadNccl().version.empty());  // needs no driver
  int gpus = 0;
  cudaGetDeviceCount(&gpus);
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

}  // namespace

std::map<std::string, Scenario> NcclScenarios() { return {{"nccl", Nccl}}; }

}  // namespace spotlight
