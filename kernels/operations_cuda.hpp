// The functions of the CUDA back end, declared with the types of the public ones.
#pragma once

#include "kernels/operations.hpp"

namespace spotlight::cuda {

#define SPOTLIGHT_OPERATION(Name) decltype(spotlight::Name) Name;
#include "kernels/operations.inc"
#undef SPOTLIGHT_OPERATION

}  // namespace spotlight::cuda
