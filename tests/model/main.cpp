// Runs the tests with a back end of the kernels started. bf16: those that take the type from tested_activations.hpp, on
// a back end that computes from it.
//   model_test [GoogleTest's flags] [--back_end=kokkos|cuda_on_cpu|cuda] [--activations=fp32|bf16]
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/kernels/cuda_on_cpu.hpp"
#include "tests/model/tested_activations.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string back_end = "--back_end=kokkos";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--back_end=")) {
      back_end = argument;
    } else if (argument == "--activations=bf16") {
      spotlight::tested_activations = spotlight::ElementType::kBf16;
    } else if (argument != "--activations=fp32") {
      std::fprintf(stderr, "model_test: %s? --back_end=kokkos|cuda_on_cpu|cuda --activations=fp32|bf16\n", argv[i]);
      return 2;
    }
  }
  return spotlight::RunTests(2, back_end);
}
