#include <omp.h>

#include <Kokkos_Core.hpp>
#include <cstdlib>

#include "kernels/runtime.hpp"

namespace spotlight {

void StartKernels(int threads) {
  // Ranks of one node share its cores: binding would put them all on the first ones. Kokkos warns if this is unset.
  setenv("OMP_PROC_BIND", "false", 0);
  omp_set_num_threads(threads);
  Kokkos::initialize(Kokkos::InitializationSettings().set_num_threads(threads).set_disable_warnings(true));
}

void StopKernels() {
  if (Kokkos::is_initialized()) Kokkos::finalize();
}

int KernelThreads() { return Kokkos::DefaultHostExecutionSpace().concurrency(); }

}  // namespace spotlight
