// Back ends of the test programs: Kokkos; the CUDA back end's own kernels run on the CPU by the emulation
// (kernels/cuda/launch.hpp), where what the plug-in leaves to cuBLASLt has its roundings (linear_on_cpu.hpp) and
// convolutions are Kokkos'; and the plug-in on a GPU (tests/kernels/on_device.hpp).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "kernels/operations.hpp"

namespace spotlight {

const Operations& CudaOnCpuOperations();

// Runs all tests with a back end started: --back_end=kokkos|cuda_on_cpu|cuda. The exit code for main to return; 2, with
// the reason on stderr, if that back end cannot be had.
int RunTests(int threads, const std::string& back_end);

// Tests of what only the CUDA back end does: on a GPU if that is the active back end, else by the emulation.
class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (&before_ == &KokkosOperations()) UseOperations(CudaOnCpuOperations());
  }
  void TearDown() override { UseOperations(before_); }

 private:
  const Operations& before_ = ActiveOperations();
};

}  // namespace spotlight
