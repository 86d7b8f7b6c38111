#include "kernels/back_end.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "kernels/operations.hpp"

namespace spotlight {
namespace {

void* plug_in_in_use = nullptr;

// Makes CUDA's operations the active ones; what was found. UserError: why it cannot.
std::string UseCuda(const BackEndChoice& choice) {
  // First the driver: the plug-in alone costs each process 0.13 s and 190 MB.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw UserError("there is no NVIDIA driver (libcuda.so.1)");
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = program.parent_path() / "libspotlight_cuda.so";
  if (!std::filesystem::exists(path, error)) {
    throw UserError(fmt::format("{} is not there: build it with -DSPOTLIGHT_CUDA=ON", path));
  }
  void* const plug_in = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plug_in == nullptr) throw UserError(fmt::format("{} cannot be loaded: {}", path, dlerror()));
  const auto entry = reinterpret_cast<CudaEntry>(dlsym(plug_in, kCudaEntry));
  SPOTLIGHT_REQUIRE(entry != nullptr, path + " is of another version");
  std::string description;
  UseOperations(entry(choice, description));
  plug_in_in_use = plug_in;
  return description;
}

}  // namespace

void* PlugInFunction(const char* name) {
  return dlsym(plug_in_in_use == nullptr ? RTLD_DEFAULT : plug_in_in_use, name);
}

std::string ChooseBackEnd(const BackEndChoice& choice) {
  if (choice.back_end == BackEnd::kKokkos) return "computes on the CPU";
  try {
    return "computes on " + UseCuda(choice);
  } catch (const UserError& reason) {
    if (choice.back_end == BackEnd::kAuto) return fmt::format("computes on the CPU: {}", reason.what());
    throw UserError(fmt::format("device/backend = cuda: {}; or device/backend = kokkos", reason.what()));
  }
}

}  // namespace spotlight
