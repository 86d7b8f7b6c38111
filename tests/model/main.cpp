// Runs the tests with the kernels' back end started.
#include <gtest/gtest.h>

#include "kernels/runtime.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  spotlight::StartKernels(2);
  const int code = RUN_ALL_TESTS();
  spotlight::StopKernels();
  return code;
}
