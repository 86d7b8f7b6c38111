// Whether two machines compute the same bits: a run's result must not depend on where a request was denoised, but last
// bits of a matrix product do depend on the instruction set that the processor offers.
#pragma once

#include <cstdint>

namespace spotlight {

// Hash of the bits of a small fixed computation: noise, matrix products forward and backward, attention, norms,
// activations; where the back end has them, also of activations in bfloat16. Equal on machines whose results agree;
// takes milliseconds. After StartKernels.
std::uint64_t ArithmeticFingerprint();

}  // namespace spotlight
