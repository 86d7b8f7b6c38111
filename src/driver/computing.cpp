#include "driver/computing.hpp"

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "kernels/back_end.hpp"
#include "kernels/operations.hpp"
#include "kernels/runtime.hpp"

namespace spotlight {

void StartComputing(const Config& config, const World& world) {
  using Backend = DeviceConfig::Backend;
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  StartKernels(config.device.threads > 0 ? config.device.threads : std::max(1, cores / world.local_ranks()));
  if (config.device.backend == Backend::kKokkos) return;
  BackEndChoice choice{.gpu = config.device.gpu, .local_rank = world.local_index()};
  choice.back_end = config.device.backend == Backend::kCuda ? BackEnd::kCuda : BackEnd::kAuto;
  const std::string what = ChooseBackEnd(choice);
  if (world.rank() == 0) LogLine(what);
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
