// Marks a function that a CUDA compiler builds for the device, too; nothing to any other compiler.
#pragma once

#ifdef __CUDACC__
#define SPOTLIGHT_HOST_DEVICE __host__ __device__
#else
#define SPOTLIGHT_HOST_DEVICE
#endif
