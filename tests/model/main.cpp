// Runs the tests with a back end of the kernels started.
//   model_test [GoogleTest's flags] [--back_end=kokkos|cuda_on_cpu|cuda]
#include <gtest/gtest.h>

#include "tests/kernels/cuda_on_cpu.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return spotlight::RunTests(2, argc > 1 ? argv[1] : "--back_end=kokkos");
}
