#include "kernels/operations_kokkos.hpp"

namespace spotlight {

const Operations& KokkosOperations() {
  static constexpr Operations kOperations{
      .name = "kokkos",
      .host_memory = true,
      .bf16 = false,
      .records = false,
#define SPOTLIGHT_OPERATION(Name) .Name = &kokkos::Name,
#include "kernels/operations.inc"
#undef SPOTLIGHT_OPERATION
  };
  return kOperations;
}

}  // namespace spotlight
