#include "tests/kernels/cuda_on_cpu.hpp"

#include <cstdio>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "kernels/cuda/recorder_on_cpu.hpp"
#include "kernels/operations_cuda.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/runtime.hpp"
#include "tests/kernels/late_copy.hpp"
#include "tests/kernels/linear_on_cpu.hpp"
#include "tests/kernels/on_device.hpp"

namespace spotlight {
namespace {

// The operation; kept with its arguments while launches are recorded.
template <auto kOperation>
struct Recorded;
template <typename... Arguments, void (*kOperation)(Arguments...)>
struct Recorded<kOperation> {
  static void Call(Arguments... arguments) {
    if (!on_cpu::IsRecording()) return kOperation(arguments...);
    on_cpu::Keep([values = std::tuple<std::decay_t<Arguments>...>(arguments...)] { std::apply(kOperation, values); });
  }
};

// Kokkos' operation; an error while launches are recorded, as on a device.
template <auto kOperation>
struct Refused;
template <typename Result, typename... Arguments, Result (*Operations::*kOperation)(Arguments...)>
struct Refused<kOperation> {
  static Result Call(Arguments... arguments) {
    SPOTLIGHT_REQUIRE(!on_cpu::IsRecording(), "the host's work among recorded launches");
    return (KokkosOperations().*kOperation)(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace

const Operations& CudaOnCpuOperations() {
  static const Operations kOperations = [] {
    Operations operations = KokkosOperations();
    operations.name = "cuda_on_cpu";
    operations.bf16 = true;
    operations.records = true;
#define SPOTLIGHT_OPERATION(Name) operations.Name = &Refused<&Operations::Name>::Call;
    SPOTLIGHT_OPERATION(AllocateMemory)
    SPOTLIGHT_OPERATION(CopyIn)
    SPOTLIGHT_OPERATION(CopyOut)
    SPOTLIGHT_OPERATION(PackConvolution)
    SPOTLIGHT_OPERATION(Convolve)
#undef SPOTLIGHT_OPERATION
    operations.ZeroMemory = &Recorded<&kokkos::ZeroMemory>::Call;
#define SPOTLIGHT_OPERATION(Name) operations.Name = &Recorded<&linear_on_cpu::Name>::Call;
    SPOTLIGHT_OPERATION(Gemm)
    SPOTLIGHT_OPERATION(LinearForward)
    SPOTLIGHT_OPERATION(LinearBackwardInput)
    SPOTLIGHT_OPERATION(LinearBackwardWeight)
    SPOTLIGHT_OPERATION(LinearBackwardWeightInSlices)
#undef SPOTLIGHT_OPERATION
#define SPOTLIGHT_OPERATION(Name) operations.Name = &cuda::Name;
#include "kernels/cuda/own_operations.inc"
#undef SPOTLIGHT_OPERATION
    operations.MakeHostCopy = &MakeLateCopy;
    operations.Record = &on_cpu::Record;
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
