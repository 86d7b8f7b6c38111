// One program for all kernel tests: the back end has to run for as long as they do.
//   kernels_test [GoogleTest's flags] [threads, default 2]
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/runtime.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  spotlight::StartKernels(argc > 1 ? std::atoi(argv[1]) : 2);
  const int result = RUN_ALL_TESTS();
  spotlight::StopKernels();
  return result;
}
