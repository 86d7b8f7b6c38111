// The CUDA back end's own kernels, run on the CPU by the emulation (kernels/cuda/launch.hpp), as a table of operations:
// what the plug-in leaves to cuBLASLt and cuDNN is Kokkos' here.
#pragma once

#include <string>

#include "kernels/operations.hpp"

namespace spotlight {

const Operations& CudaOnCpuOperations();

// Makes the operations that `argument` asks for the active ones: --back_end=kokkos|cuda_on_cpu. False: it is another
// one.
bool TakesBackEnd(const std::string& argument);

}  // namespace spotlight
