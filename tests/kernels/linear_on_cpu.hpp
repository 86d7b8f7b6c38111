// The matrix products of the CUDA back end for its emulation on the CPU: Kokkos' fp32 products between the roundings
// that kernels/linear_cublaslt.cpp documents. Where nothing is bfloat16 they are Kokkos' bit for bit, but for the bias'
// gradient, which both back ends sum with kernels of their own.
#pragma once

#include "kernels/linear.hpp"

namespace spotlight::linear_on_cpu {

decltype(spotlight::Gemm) Gemm;
decltype(spotlight::LinearForward) LinearForward;
decltype(spotlight::LinearBackwardInput) LinearBackwardInput;
decltype(spotlight::LinearBackwardWeight) LinearBackwardWeight;
decltype(spotlight::LinearBackwardWeightInSlices) LinearBackwardWeightInSlices;

}  // namespace spotlight::linear_on_cpu
