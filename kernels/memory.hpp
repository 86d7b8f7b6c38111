// Memory of the active back end, as kernels/buffer.hpp needs it. Host memory for the CPU; device memory is not readable
// by the host. When CopyOut returns its values are there; when CopyIn returns the host's may be changed, and kernels
// that are called later see what they were.
#pragma once

#include <cstddef>

namespace spotlight {

// `bytes` of undefined content, aligned to 64 bytes at least. Throws if there is not as much left.
void* AllocateMemory(std::size_t bytes);
void FreeMemory(void* memory);
void CopyIn(void* to, const void* host, std::size_t bytes);
void CopyOut(void* host, const void* from, std::size_t bytes);
void ZeroMemory(void* to, std::size_t bytes);
// What operations are launched on, in order: a cudaStream_t for libraries that take part in the order. Null: they are
// complete when they return.
void* LaunchQueue();

}  // namespace spotlight
