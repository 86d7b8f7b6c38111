#include "comm/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr const char* kName = "libnccl.so.2";
constexpr int kOldest = NCCL_VERSION(2, 20, 0);

NcclLibrary Load() {
  void* const library = [] {
    void* const usual = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    return usual != nullptr ? usual : dlopen(SPOTLIGHT_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  }();
  if (library == nullptr) throw UserError(fmt::format("NCCL cannot be loaded: {}", dlerror()));
  NcclLibrary nccl;
#define SPOTLIGHT_NCCL_FUNCTION(Name)                                              \
  nccl.Name = reinterpret_cast<decltype(nccl.Name)>(dlsym(library, "nccl" #Name)); \
  if (nccl.Name == nullptr) throw UserError(fmt::format("{} is too old: it has no nccl{}", kName, #Name));
#include "comm/nccl_functions.inc"
#undef SPOTLIGHT_NCCL_FUNCTION
  int version = 0;
  nccl.GetVersion(&version);
  nccl.version = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (version < kOldest) throw UserError(fmt::format("NCCL {} is too old: 2.20 or later is needed", nccl.version));
  return nccl;
}

}  // namespace

const NcclLibrary& LoadNccl() {
  static const NcclLibrary nccl = Load();
  return nccl;
}

}  // namespace spotlight
