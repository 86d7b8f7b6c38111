#include "tests/bench/device_meter.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "kernels/linear.hpp"
#include "kernels/operations.hpp"
#include "kernels/runtime.hpp"

namespace spotlight {
namespace {

// The CPU's: operations are done when they return.
class HostMeter : public DeviceMeter {
 public:
  std::string device() const override { return "CPU, " + std::to_string(KernelThreads()) + " threads"; }
  double cache_bytes() const override { return 1 << 20; }

  void Start() override { start_ = std::chrono::steady_clock::now(); }
  double Stop() override { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  void Copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  double ProductSeconds(std::int64_t side, const void* a, const void* b, void* c) override {
    const GemmShape shape{.m = side, .n = side, .k = side, .lda = side, .ldb = side, .ldc = side};
    const auto product = [&] {
      Gemm(shape, static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c));
    };
    product();
    Start();
    product();
    return Stop();
  }

  double used_bytes() const override { return 0; }
  double total_bytes() const override { return 0; }

 private:
  std::chrono::steady_clock::time_point start_;
};

void* Load(const std::string& path, int mode) {
  void* const library = dlopen(path.c_str(), mode);
  if (library == nullptr) throw UserError(path + " cannot be loaded: " + dlerror());
  return library;
}

}  // namespace

std::unique_ptr<DeviceMeter> MakeDeviceMeter() {
  if (std::string_view(ActiveOperations().name) != "cuda") return std::make_unique<HostMeter>();
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  void* const plug_in = Load(folder / "libspotlight_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  // spotlight::cuda::CurrentStream() of kernels/cuda/runtime.hpp
  void* const stream = dlsym(plug_in, "_ZN9spotlight4cuda13CurrentStreamEv");
  SPOTLIGHT_REQUIRE(stream != nullptr, "the plug-in has no CurrentStream");
  void* const meter = dlsym(Load(folder / "libspotlight_cuda_meter.so", RTLD_NOW | RTLD_LOCAL), kCudaMeterEntry);
  SPOTLIGHT_REQUIRE(meter != nullptr, "the meter is of another version");
  return std::unique_ptr<DeviceMeter>(reinterpret_cast<CudaMeterEntry>(meter)(reinterpret_cast<void* (*)()>(stream)()));
}

}  // namespace spotlight
