// What kernels of the CUDA back end need of the process that runs them. Two implementations: runtime.cpp on a device,
// runtime_on_cpu.cpp for the emulation of launch.hpp. No part of the toolkit is needed to include this.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace spotlight::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Where this process launches everything, in order. Null in the emulation.
Stream CurrentStream();

// Uninitialised memory on the device for `bytes`, aligned to 256, good until the next call: what is launched later runs
// later, so a kernel is done with it when another one gets it. It grows to the largest size asked for; older memory
// stays, because graphs of launches may hold its address.
void* ScratchBytes(std::size_t bytes);
// The largest size so far: as long as it stays, ScratchBytes waits for nothing on a device.
std::size_t ScratchSize();

template <typename T>
T* Scratch(std::size_t count) {
  return static_cast<T*>(ScratchBytes(count * sizeof(T)));
}

}  // namespace spotlight::cuda
