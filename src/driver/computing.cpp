#include "driver/computing.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/peer_memory.hpp"
#include "kernels/back_end.hpp"
#include "kernels/operations.hpp"
#include "kernels/runtime.hpp"

namespace spotlight {

namespace {

void UseBackEnd(const DeviceConfig& device, const World& world) {
  using Backend = DeviceConfig::Backend;
  if (device.backend == Backend::kKokkos) return;
  BackEndChoice choice{.gpu = device.gpu, .local_rank = world.local_index()};
  choice.back_end = device.backend == Backend::kCuda ? BackEnd::kCuda : BackEnd::kAuto;
  const std::string what = ChooseBackEnd(choice);
  if (world.rank() == 0) LogLine(what);
}

void ChooseActivations(ModelConfig& model) {
  using Type = ModelConfig::Activations;
  const bool bf16 = ActiveOperations().bf16;
  if (model.activations == Type::kBf16 && !bf16) {
    throw UserError(
        "model/activations = bf16: the CPU computes from fp32 only; take fp32 or auto, or device/backend = cuda");
  }
  if (model.activations == Type::kAuto) model.activations = bf16 ? Type::kBf16 : Type::kFp32;
}

}  // namespace

void StartComputing(Config& config, const World& world) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  StartKernels(config.device.threads > 0 ? config.device.threads : std::max(1, cores / world.local_ranks()));
  UseBackEnd(config.device, world);
  ChooseActivations(config.model);
}

void UseWindows(const Config& config, World& world) {
  const bool groups = config.ranks.trainer_sp > 1 || config.ranks.explorer_sp > 1;
  if (!groups || config.device.backend == DeviceConfig::Backend::kKokkos ||
      config.device.ipc == DeviceConfig::Ipc::kOff) {
    return;  // on all ranks
  }
  std::unique_ptr<PeerMemory> memory;
  std::string reason;
  try {
    const int degree = world.role() == Role::kCoordinator ? 1
                       : world.role() == Role::kTrainer   ? config.ranks.trainer_sp
                                                          : config.ranks.explorer_sp;
    const auto entry = reinterpret_cast<PeerMemoryEntry>(PlugInFunction(kPeerMemoryEntry));
    if (degree > 1 && !ActiveOperations().host_memory && entry != nullptr) entry(memory);
  } catch (const UserError& error) {
    reason = error.what();
  }
  try {
    world.UseWindows(std::move(memory), kWindowSlotBytes);
  } catch (const UserError& error) {
    reason = error.what();
  }
  if (!reason.empty()) LogLine("this rank's groups exchange through the host by MPI: " + reason);
}

void ConnectTrainers(const Config& config, TrainerGroup& trainers) {
  if (trainers.size() == 1 || config.device.backend == DeviceConfig::Backend::kKokkos ||
      config.device.nccl == DeviceConfig::Nccl::kOff) {
    return;  // on all trainers
  }
  const bool on_gpu = !ActiveOperations().host_memory;
  const auto entry = on_gpu ? reinterpret_cast<NcclEntry>(PlugInFunction(kNcclEntry)) : nullptr;
  // All trainers call it, because with device/backend = auto each finds out by itself what it computes on.
  const std::string reason = trainers.Connect(entry == nullptr ? nullptr : &entry());
  if (!on_gpu || trainers.index() > 0) return;
  LogLine(reason.empty() ? "the trainers exchange by " + trainers.device()->name()
                         : "the trainers exchange through the host by MPI: " + reason);
}

}  // namespace spotlight
