// Normalisations of the transformer, forward and backward. Statistics are fp32 with a fixed
// summation order per row.
//
// Letters: B batch, R rows: the tokens of one stream of all samples (kernels/token_rows.hpp), d width, U distinct noise
// levels. Modulation numbers are stored once per distinct level: row index[b] of a [U, stride] table belongs to sample
// b.
#pragma once

#include <cstdint>

#include "kernels/activations.hpp"
#include "kernels/token_rows.hpp"

namespace spotlight {

// A column of the modulation table: element j of sample b is data[index[b] * stride + j].
struct Modulation {
  const float* data = nullptr;
  std::int64_t stride = 0;
  const int* index = nullptr;  // [B]
};
struct ModulationGradient {
  float* data = nullptr;  // accumulated in order of b, then token block; null: not wanted
  std::int64_t stride = 0;
  const int* index = nullptr;
};

// y = LN(x) * (1 + scale) + shift, LN without affine: (x - mean) / sqrt(var + eps), biased variance.
// x, y: [R, d]; mean, rstd: [R] saved for the backward.
void LayerNormModulateForward(const TokenRows& rows, std::int64_t width, float eps, const float* x, Modulation shift,
                              Modulation scale, Activations y, float* mean, float* rstd);

// dx += d loss / dx (null: not wanted); dshift, dscale += over tokens.
void LayerNormModulateBackward(const TokenRows& rows, std::int64_t width, const float* x, const float* mean,
                               const float* rstd, Modulation scale, ConstActivations dy, float* dx,
                               ModulationGradient dshift, ModulationGradient dscale);

// y = x * w / sqrt(mean(x^2) + eps), x [rows, width]; rstd [rows] saved.
void RmsNormForward(std::int64_t rows, std::int64_t width, float eps, const float* x, const float* weight,
                    Activations y, float* rstd);
// dx (overwritten; may be null), dweight += (may be null).
void RmsNormBackward(std::int64_t rows, std::int64_t width, const float* x, const float* weight, const float* rstd,
                     ConstActivations dy, float* dx, float* dweight);

// x [R, d] += gate * branch.
void GatedResidualForward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                          float* x);
// GatedResidualForward, then LayerNormModulateForward of the new x, in one pass: the bits of the two. branch and y have
// the same element type.
void GatedResidualLayerNorm(const TokenRows& rows, std::int64_t width, float eps, Modulation gate,
                            ConstActivations branch, float* x, Modulation shift, Modulation scale, Activations y,
                            float* mean, float* rstd);
// dbranch = gate * dx (overwritten; null: not wanted); dgate += sum over tokens of dx * branch. dx itself passes on
// unchanged.
void GatedResidualBackward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                           const float* dx, Activations dbranch, ModulationGradient dgate);

}  // namespace spotlight
