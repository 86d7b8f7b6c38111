// The element type of activations that the tests of the transformer run with: --activations of main.cpp.
#pragma once

#include "base/element_type.hpp"

namespace spotlight {

inline ElementType tested_activations = ElementType::kFp32;

}  // namespace spotlight
