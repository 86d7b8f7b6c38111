// What to change in an input so that a rank fits on a device: found by trying the settings that save memory, by
// arithmetic alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/memory_estimate.hpp"

namespace spotlight {

// Overrides ("train/micro_batch=2") with which a rank of `role` needs at most `bytes` on its device: none if it fits as
// it is, few of them, and those that cost least first: recomputation and smaller batches before more ranks. nullopt:
// nothing that is tried suffices (up to 64 trainers, passes shared by up to 8 ranks).
std::optional<std::vector<std::string>> ChangesToFit(const Config& config, const DitLayout& layout, Index text_tokens,
                                                     Index sigmas, Role role, double bytes);

}  // namespace spotlight
