// One program for all kernel tests: the back end has to run for as long as they do.
//   kernels_test [GoogleTest's flags] [--back_end=kokkos|cuda_on_cpu|cuda] [threads, default 2]
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "kernels/runtime.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"
#include "tests/kernels/on_device.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string back_end = "--back_end=kokkos";
  int threads = 2;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--back_end=")) {
      back_end = argument;
    } else {
      threads = std::atoi(argument.c_str());
    }
  }
  if (threads < 1) {
    std::fprintf(stderr, "kernels_test: --back_end=kokkos|cuda_on_cpu|cuda, and a number of threads\n");
    return 2;
  }
  return spotlight::RunTests(threads, back_end);
}
