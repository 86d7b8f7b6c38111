// The CUDA back end's own kernels, run on the CPU by the emulation (kernels/cuda/launch.hpp), as a table of operations:
// what the plug-in leaves to cuBLASLt and cuDNN is Kokkos' here.
#pragma once

#include "kernels/operations.hpp"

namespace spotlight {

const Operations& CudaOnCpuOperations();

}  // namespace spotlight
