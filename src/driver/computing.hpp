// What a rank computes with: its threads, and the GPU if there is to be one (section [device]).
#pragma once

#include "comm/trainer_group.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"

namespace spotlight {

// Once per process, before anything of kernels/ is used; StopKernels ends it. UserError if device/backend = cuda and
// this rank cannot have a GPU.
void StartComputing(const Config& config, const World& world);

// Collective over the trainers: connects their GPUs if they have any, so that what they exchange need not go through
// the host. One line of the first trainer's log says how it goes. Throws PeerLost.
void ConnectTrainers(const Config& config, TrainerGroup& trainers);

}  // namespace spotlight
