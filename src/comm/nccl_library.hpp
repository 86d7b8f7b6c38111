// NCCL's functions, found at run time: a machine without the library has the plug-in all the same, and ranks that need
// no NCCL do not load it.
#pragma once

#include <nccl.h>

#include <string>

namespace spotlight {

struct NcclLibrary {
#define SPOTLIGHT_NCCL_FUNCTION(Name) decltype(&::nccl##Name) Name = nullptr;
#include "comm/nccl_functions.inc"
#undef SPOTLIGHT_NCCL_FUNCTION
  std::string version;
};

// Loads it at the first call: the system's libnccl.so.2, else the one that this was built with. UserError: there is
// none, or one that is too old.
const NcclLibrary& LoadNccl();

}  // namespace spotlight
