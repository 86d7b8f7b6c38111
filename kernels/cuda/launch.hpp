// Launches of CUDA kernels from sources that two compilers take:
//
//   nvcc          Launch() is `<<<>>>` on CurrentStream(); it returns before the kernel has run.
//   any other     the kernel runs on the CPU, thread by thread, before Launch() returns (kernels/cuda/on_cpu.hpp has
//                 what it may use), or is recorded; kernels/cuda/*on_cpu.cpp have to be linked.
//
// Blocks are independent: no kernel may expect that another block runs at the same time or has run before.
#pragma once

#include <cstddef>
#include <utility>

#ifdef __CUDACC__

#include <cuda_runtime.h>

#include <string>

#include "base/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace spotlight::cuda {

// Runs kernel(arguments...) for every thread of every block. grid: blocks, none if a dimension is 0; block: threads;
// shared_bytes: of dynamic shared memory (SharedMemory()), also above the 48 KiB that need a permission. Internal error
// if the device refuses, be it this launch or an earlier one.
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes, Arguments&&... arguments) {
  constexpr std::size_t kWithoutPermission = 48 * 1024;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const bool permitted =
      shared_bytes <= kWithoutPermission || cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                                 static_cast<int>(shared_bytes)) == cudaSuccess;
  if (permitted) kernel<<<grid, block, shared_bytes, CurrentStream()>>>(std::forward<Arguments>(arguments)...);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  const char* name = "?";
  cudaFuncGetName(&name, reinterpret_cast<const void*>(kernel));
  SPOTLIGHT_REQUIRE(error == cudaSuccess, std::string("launch of ") + name + ": " + cudaGetErrorName(error) + ", " +
                                              cudaGetErrorString(error));
}

// The dynamic shared memory of the calling thread's block, 16-byte aligned, uninitialised.
template <typename T>
__device__ __forceinline__ T* SharedMemory() {
  extern __shared__ __align__(16) unsigned char dynamic_shared_memory[];
  return reinterpret_cast<T*>(dynamic_shared_memory);
}

}  // namespace spotlight::cuda

#else

#include <source_location>
#include <tuple>
#include <type_traits>

#include "kernels/cuda/on_cpu.hpp"
#include "kernels/cuda/recorder_on_cpu.hpp"

namespace spotlight::cuda {

// A launch's grid and the place of the launch, for messages.
struct LaunchGrid {
  dim3 blocks;
  std::source_location where;

  LaunchGrid(dim3 size, std::source_location place = std::source_location::current()) : blocks(size), where(place) {}
  template <typename Integer>
  requires std::is_integral_v<Integer> LaunchGrid(Integer size,
                                                  std::source_location place = std::source_location::current())
      : blocks(static_cast<unsigned>(size)), where(place) {}
};

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), LaunchGrid grid, dim3 block, std::size_t shared_bytes,
            Arguments&&... arguments) {
  const auto run = [=, values = std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)] {
    on_cpu::RunGrid(
        grid.blocks, block, shared_bytes, [&] { std::apply(kernel, values); }, grid.where);
  };
  if (on_cpu::IsRecording()) return on_cpu::Keep(run);
  run();
}

template <typename T>
T* SharedMemory() {
  return reinterpret_cast<T*>(on_cpu::DynamicSharedMemory());
}

}  // namespace spotlight::cuda

#endif
