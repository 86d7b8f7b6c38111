// All operations and their table.
//
// A public function (namespace spotlight) calls the one of the same name and type in the table of the active back end
// (dispatch.cpp). `kokkos` runs on the CPU and is always there; `cuda` comes with a plug-in (kernels/runtime.hpp).
#pragma once

#include "kernels/activation.hpp"
#include "kernels/attention.hpp"
#include "kernels/block_copy.hpp"
#include "kernels/buffer.hpp"
#include "kernels/convolution.hpp"
#include "kernels/guidance.hpp"
#include "kernels/latents.hpp"
#include "kernels/linear.hpp"
#include "kernels/memory.hpp"
#include "kernels/norm.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/pixel_norm.hpp"
#include "kernels/qk_rope.hpp"
#include "kernels/sde_step.hpp"
#include "kernels/step_cache.hpp"
#include "kernels/stream.hpp"

namespace spotlight {

struct Operations {
  const char* name;
  bool host_memory;  // memory.hpp gives the host's: what lies there may be read and written without copies
  bool bf16;         // computes from activations that are stored in bfloat16, too (kernels/activations.hpp)
  bool records;      // Record is worth its price
#define SPOTLIGHT_OPERATION(Name) decltype(&spotlight::Name) Name;
#include "kernels/operations.inc"
#undef SPOTLIGHT_OPERATION
};

// The table in use: kokkos' until another one is set. Not while kernels run.
const Operations& ActiveOperations();
void UseOperations(const Operations& operations);

const Operations& KokkosOperations();

}  // namespace spotlight
