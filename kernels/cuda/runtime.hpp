// What kernels of the CUDA back end need of the process that runs them. Two implementations: runtime.cpp on a device,
// runtime_on_cpu.cpp for the emulation of launch.hpp. No part of the toolkit is needed to include this.
#pragma once

#include <cstddef>

struct CUstream_st;

namespace spotlight::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// Of shared memory, that a block may ask for: what an A100 gives. Devices of less are refused at the start.
constexpr std::size_t kMostSharedBytes = 163 * 1024;

// Where this process launches everything, in order. Null in the emulation.
Stream CurrentStream();

// Uninitialised memory on the device for `bytes`, aligned to 256, good until the next call: what is launched later runs
// later, so a kernel is done with it when another one gets it. It grows to the largest size asked for, and recordings
// are made anew then (scratch.hpp). UserError: the device has too little memory.
void* ScratchBytes(std::size_t bytes);
// The largest size so far: as long as it stays, ScratchBytes waits for nothing on a device.
std::size_t ScratchSize();

template <typename T>
T* Scratch(std::size_t count) {
  return static_cast<T*>(ScratchBytes(count * sizeof(T)));
}

}  // namespace spotlight::cuda
