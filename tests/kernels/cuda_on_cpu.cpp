#include "tests/kernels/cuda_on_cpu.hpp"

#include <cstdio>

#include "base/error.hpp"
#include "kernels/operations_cuda.hpp"
#include "kernels/runtime.hpp"
#include "tests/kernels/linear_on_cpu.hpp"
#include "tests/kernels/on_device.hpp"

namespace spotlight {

const Operations& CudaOnCpuOperations() {
  static const Operations kOperations = [] {
    Operations operations = KokkosOperations();
    operations.name = "cuda_on_cpu";
    operations.bf16 = true;
#define SPOTLIGHT_OPERATION(Name) operations.Name = &cuda::Name;
#include "kernels/cuda/own_operations.inc"
#undef SPOTLIGHT_OPERATION
    operations.Gemm = &linear_on_cpu::Gemm;
    operations.LinearForward = &linear_on_cpu::LinearForward;
    operations.LinearBackwardInput = &linear_on_cpu::LinearBackwardInput;
    operations.LinearBackwardWeight = &linear_on_cpu::LinearBackwardWeight;
    operations.LinearBackwardWeightInSlices = &linear_on_cpu::LinearBackwardWeightInSlices;
    return operations;
  }();
  return kOperations;
}

namespace {

// Makes the operations that `argument` asks for the active ones. False: it asks for something else.
bool TakesBackEnd(const std::string& argument) {
  if (argument == "--back_end=cuda") {
    UseDevice();
  } else if (argument == "--back_end=cuda_on_cpu") {
    UseOperations(CudaOnCpuOperations());
  } else if (argument == "--back_end=kokkos") {
    UseOperations(KokkosOperations());
  } else {
    return false;
  }
  return true;
}

}  // namespace

int RunTests(int threads, const std::string& back_end) {
  StartKernels(threads);
  int code = 2;
  try {
    if (TakesBackEnd(back_end)) {
      code = RUN_ALL_TESTS();
    } else {
      std::fprintf(stderr, "%s? --back_end=kokkos|cuda_on_cpu|cuda\n", back_end.c_str());
    }
  } catch (const UserError& reason) {
    std::fprintf(stderr, "%s\n", reason.what());
  }
  StopKernels();
  return EndTests(code);
}

}  // namespace spotlight
