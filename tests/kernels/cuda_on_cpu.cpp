#include "tests/kernels/cuda_on_cpu.hpp"

#include "kernels/operations_cuda.hpp"

namespace spotlight {

const Operations& CudaOnCpuOperations() {
  static const Operations kOperations = [] {
    Operations operations = KokkosOperations();
    operations.name = "cuda_on_cpu";
#define SPOTLIGHT_OPERATION(Name) operations.Name = &cuda::Name;
#include "kernels/cuda/own_operations.inc"
#undef SPOTLIGHT_OPERATION
    return operations;
  }();
  return kOperations;
}

}  // namespace spotlight
