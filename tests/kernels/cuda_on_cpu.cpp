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

bool TakesBackEnd(const std::string& argument) {
  if (argument == "--back_end=cuda_on_cpu") {
    UseOperations(CudaOnCpuOperations());
  } else if (argument == "--back_end=kokkos") {
    UseOperations(KokkosOperations());
  } else {
    return false;
  }
  return true;
}

}  // namespace spotlight
