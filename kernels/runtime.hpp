// Start and end of the kernels' back end.
#pragma once

namespace spotlight {

// `threads` >= 1 of this process run the kernels. Once per process, before any kernel.
void StartKernels(int threads);
void StopKernels();
// Threads that run the kernels.
int KernelThreads();

}  // namespace spotlight
