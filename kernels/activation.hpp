// Pointwise activations, forward and backward, accurate to fp32 rounding (no approximate exp or tanh).
#pragma once

#include <cstdint>

#include "kernels/activations.hpp"

namespace spotlight {

// GELU_tanh(z) = z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))). x and y may be the same.
void GeluForward(std::int64_t size, ConstActivations x, Activations y);
// dx = dy * GELU'(x); dx may be dy.
void GeluBackward(std::int64_t size, ConstActivations x, ConstActivations dy, Activations dx);

// SiLU(z) = z / (1 + exp(-z)).
void SiluForward(std::int64_t size, const float* x, float* y);
// dx += dy * SiLU'(x).
void SiluBackward(std::int64_t size, const float* x, const float* dy, float* dx);

// The modules' sinusoid (Qwen-Image): e [rows, 256] = [cos(1000 t f_j), sin(1000 t f_j)], f_j = 10000^(-j/128).
void TimeSinusoid(std::int64_t rows, const float* t, float* e);

}  // namespace spotlight
