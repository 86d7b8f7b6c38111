// What a rank computes with: its threads, and the GPU if there is to be one (section [device]).
#pragma once

#include "comm/world.hpp"
#include "config/config.hpp"

namespace spotlight {

// Once per process, before anything of kernels/ is used; StopKernels ends it. UserError if device/backend = cuda and
// this rank cannot have a GPU.
void StartComputing(const Config& config, const World& world);

}  // namespace spotlight
