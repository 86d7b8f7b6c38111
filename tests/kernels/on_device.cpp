#include "tests/kernels/on_device.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/back_end.hpp"
#include "kernels/operations.hpp"

namespace spotlight {
namespace {

// One piece of pinned memory, handed out in sizes of powers of two.
class PinnedMemory {
 public:
  void Start(std::byte* memory) { base_ = memory; }

  bool Has(const void* address) const { return base_ != nullptr && address >= base_ && address < base_ + kBytes; }

  // Null: none is left.
  void* Allocate(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const auto order = static_cast<std::size_t>(std::bit_width(std::max(bytes, kLeast) - 1));
    const std::size_t size = std::size_t{1} << order;
    if (Free* const piece = free_[order]; piece != nullptr) {
      free_[order] = piece->next;
      return piece;
    }
    if (base_ == nullptr || used_ + kHeader + size > kBytes) return nullptr;
    std::byte* const piece = base_ + used_ + kHeader;
    used_ += kHeader + size;
    new (piece - kHeader) std::size_t{order};
    return piece;
  }

  void Release(void* memory) {
    const std::scoped_lock lock(mutex_);
    std::size_t order = 0;
    std::memcpy(&order, static_cast<std::byte*>(memory) - kHeader, sizeof order);
    free_[order] = new (memory) Free{free_[order]};
  }

  static constexpr std::size_t kBytes = std::size_t{2} << 30;

 private:
  struct Free {
    Free* next;
  };
  static constexpr std::size_t kLeast = 256, kHeader = 256;  // kernels expect the alignment of cudaMalloc

  std::mutex mutex_;
  std::byte* base_ = nullptr;
  std::size_t used_ = 0;
  std::array<Free*, 64> free_{};
};

constinit PinnedMemory pinned_memory;
constinit std::atomic<bool> uses_device = false;
// Operations that the thread is in: what they allocate is not the tests'.
constinit thread_local int running = 0;

void* Allocate(std::size_t bytes, std::size_t alignment) {
  if (uses_device && running == 0 && alignment <= 256) {
    if (void* const memory = pinned_memory.Allocate(bytes); memory != nullptr) return memory;
  }
  const std::size_t whole = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(whole) : std::aligned_alloc(alignment, whole);
}

void* AllocateOrThrow(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
  void* const memory = Allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Release(void* memory) {
  if (pinned_memory.Has(memory)) {
    pinned_memory.Release(memory);
  } else {
    std::free(memory);
  }
}

// The plug-in, and of the CUDA runtime that it has brought along what the tests need.
constinit const Operations* plug_in = nullptr;
using Synchronize = int();
using ErrorText = const char*(int);
using Memcpy = int(void*, const void*, std::size_t, int);
constinit Synchronize* synchronize = nullptr;
constinit ErrorText *error_name = nullptr, *error_text = nullptr;
constinit Memcpy* memcpy_of_cuda = nullptr;

void Check(int status, const char* call) {
  SPOTLIGHT_REQUIRE(status == 0, std::string(call) + ": " + error_name(status) + ", " + error_text(status));
}

// The plug-in's operation, complete on return, whose own allocations are not the tests'. One that calls others, to
// record their launches, waits for all of them.
template <auto kOperation>
struct Complete;
template <typename Result, typename... Arguments, Result (*Operations::*kOperation)(Arguments...)>
struct Complete<kOperation> {
  static Result Call(Arguments... arguments) {
    struct Guard {
      Guard() { ++running; }
      ~Guard() { --running; }
    } guard;
    if constexpr (std::is_void_v<Result>) {
      (plug_in->*kOperation)(std::forward<Arguments>(arguments)...);
      Wait();
    } else {
      Result result = (plug_in->*kOperation)(std::forward<Arguments>(arguments)...);
      Wait();
      return result;
    }
  }
  static void Wait() {
    if (running == 1) Check(synchronize(), "cudaDeviceSynchronize");
  }
};

void* AllocatePinned(std::size_t bytes) {
  void* const memory = pinned_memory.Allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// Between any two of pinned, device and stack memory. An operation that copies its result to the host has launched it
// on a stream of its own.
void Copy(void* to, const void* from, std::size_t bytes) {
  Check(synchronize(), "cudaDeviceSynchronize");
  constexpr int kDefault = 4;  // cudaMemcpyDefault
  Check(memcpy_of_cuda(to, from, bytes, kDefault), "cudaMemcpy");
}

template <typename Function>
Function* Symbol(void* library, const char* name) {
  auto* const function = reinterpret_cast<Function*>(dlsym(library, name));
  SPOTLIGHT_REQUIRE(function != nullptr, name);
  return function;
}

}  // namespace

void UseDevice() {
  LogLine(ChooseBackEnd({.back_end = BackEnd::kCuda}));
  plug_in = &ActiveOperations();
  // A second handle of what is loaded. Of what it is linked to the plug-in's handle knows, too.
  Dl_info place{};
  SPOTLIGHT_REQUIRE(dladdr(reinterpret_cast<const void*>(plug_in->GeluForward), &place) != 0, "the plug-in");
  SPOTLIGHT_REQUIRE(std::string(place.dli_fname).ends_with("libspotlight_cuda.so"),
                    std::string("the plug-in's kernels are those of ") + place.dli_fname);
  void* const library = dlopen(place.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  SPOTLIGHT_REQUIRE(library != nullptr, "the plug-in");
  error_name = Symbol<ErrorText>(library, "cudaGetErrorName");
  error_text = Symbol<ErrorText>(library, "cudaGetErrorString");
  synchronize = Symbol<Synchronize>(library, "cudaDeviceSynchronize");
  memcpy_of_cuda = Symbol<Memcpy>(library, "cudaMemcpy");
  void* memory = nullptr;
  constexpr unsigned kMapped = 2;  // cudaHostAllocMapped: with unified addresses the device's are the host's
  Check(Symbol<int(void**, std::size_t, unsigned)>(library, "cudaHostAlloc")(&memory, PinnedMemory::kBytes, kMapped),
        "cudaHostAlloc");
  pinned_memory.Start(static_cast<std::byte*>(memory));

  static const Operations kOperations = [] {
    Operations operations = *plug_in;
    operations.host_memory = true;
#define SPOTLIGHT_OPERATION(Name) operations.Name = &Complete<&Operations::Name>::Call;
#include "kernels/operations.inc"
#undef SPOTLIGHT_OPERATION
    operations.AllocateMemory = &AllocatePinned;
    operations.FreeMemory = &Release;
    operations.CopyIn = &Copy;
    operations.CopyOut = &Copy;
    return operations;
  }();
  UseOperations(kOperations);
  uses_device = true;
}

int EndTests(int code) {
  if (plug_in == nullptr) return code;
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace spotlight

// All forms: those of the standard library would hand memory of one kind to the other's deallocation.
void* operator new(std::size_t bytes) { return spotlight::AllocateOrThrow(bytes); }
void* operator new[](std::size_t bytes) { return spotlight::AllocateOrThrow(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return spotlight::AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return spotlight::AllocateOrThrow(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return spotlight::Allocate(bytes, alignof(std::max_align_t));
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return spotlight::Allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return spotlight::Allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return spotlight::Allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { spotlight::Release(memory); }
void operator delete[](void* memory) noexcept { spotlight::Release(memory); }
void operator delete(void* memory, std::size_t) noexcept { spotlight::Release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { spotlight::Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { spotlight::Release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { spotlight::Release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { spotlight::Release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { spotlight::Release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { spotlight::Release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { spotlight::Release(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { spotlight::Release(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { spotlight::Release(memory); }
