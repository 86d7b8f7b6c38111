// What a rank computes with: its threads, the GPU if there is to be one (section [device]), and the type of
// activations.
#pragma once

#include <cstddef>

#include "comm/trainer_group.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"

namespace spotlight {

// Of a slot of the windows that groups on GPUs of one node exchange through (comm/peer_windows.hpp).
inline constexpr std::size_t kWindowSlotBytes = std::size_t{8} << 20;

// Once per process, before anything of kernels/ is used; StopKernels ends it. model/activations = auto becomes what the
// back end takes, so that what is recorded, sent to ranks that join, and resumed names it; ranks whose back ends differ
// find that out by their fingerprints (kernels/fingerprint.hpp). UserError if device/backend = cuda and this rank
// cannot have a GPU, or model/activations = bf16 and its back end computes in fp32 only.
void StartComputing(Config& config, const World& world);

// Lets groups of ranks with GPUs exchange in each other's memory, if there are to be groups. On all ranks, after
// StartComputing.
void UseWindows(const Config& config, World& world);

// Collective over the trainers: connects their GPUs if they have any, so that what they exchange need not go through
// the host. One line of the first trainer's log says how it goes. Throws PeerLost.
void ConnectTrainers(const Config& config, TrainerGroup& trainers);

}  // namespace spotlight
