#include "driver/computing.hpp"

#include <algorithm>
#include <thread>

#include "base/log.hpp"
#include "kernels/back_end.hpp"
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

}  // namespace spotlight
