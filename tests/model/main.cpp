// Runs the tests with a back end of the kernels started.
//   model_test [GoogleTest's flags] [--back_end=kokkos|cuda_on_cpu]
#include <gtest/gtest.h>

#include <cstdio>

#include "kernels/runtime.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (spotlight::TakesBackEnd(argv[i])) continue;
    std::fprintf(stderr, "model_test: %s? --back_end=kokkos|cuda_on_cpu\n", argv[i]);
    return 2;
  }
  spotlight::StartKernels(2);
  const int code = RUN_ALL_TESTS();
  spotlight::StopKernels();
  return code;
}
