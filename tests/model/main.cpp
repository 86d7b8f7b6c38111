// Runs the tests with a back end of the kernels started.
//   model_test [GoogleTest's flags] [--back_end=kokkos|cuda_on_cpu|cuda]
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/kernels/cuda_on_cpu.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string back_end = "--back_end=kokkos";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--back_end=")) {
      back_end = argument;
    } else {
      std::fprintf(stderr, "model_test: %s? --back_end=kokkos|cuda_on_cpu|cuda\n", argv[i]);
      return 2;
    }
  }
  return spotlight::RunTests(2, back_end);
}
