#include "driver/computing.hpp"

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
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

void ConnectTrainers(const Config& config, TrainerGroup& trainers) {
  if (trainers.size() == 1 || config.device.nccl == DeviceConfig::Nccl::kOff) return;
  const bool on_gpu = !ActiveOperations().host_memory;
  const auto entry = on_gpu ? reinterpret_cast<NcclEntry>(PlugInFunction(kNcclEntry)) : nullptr;
  // All trainers call it, because with device/backend = auto each finds out by itself what it computes on.
  const std::string reason = trainers.Connect(entry == nullptr ? nullptr : &entry());
  if (!on_gpu || trainers.index() > 0) return;
  LogLine(reason.empty() ? "the trainers exchange by " + trainers.device()->name()
                         : "the trainers exchange through the host by MPI: " + reason);
}

}  // namespace spotlight
