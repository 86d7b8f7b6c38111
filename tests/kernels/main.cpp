// One program for all kernel tests: the back end has to run for as long as they do.
//   kernels_test [GoogleTest's flags] [--back_end=kokkos|cuda_on_cpu] [threads, default 2]
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernels/runtime.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int threads = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (spotlight::TakesBackEnd(argument)) continue;
    if (std::atoi(argument.c_str()) > 0) {
      threads = std::atoi(argument.c_str());
    } else {
      std::fprintf(stderr, "kernels_test: %s? --back_end=kokkos|cuda_on_cpu, or a number of threads\n", argv[i]);
      return 2;
    }
  }
  spotlight::StartKernels(threads);
  const int result = RUN_ALL_TESTS();
  spotlight::StopKernels();
  return result;
}
