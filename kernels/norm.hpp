// Normalisations of the transformer, forward and backward. Statistics are fp32 with a fixed
// summation order per row.
//
// Letters: B batch, N tokens of one stream, d width, U distinct noise levels. Modulation numbers are
// stored once per distinct level: row mod_index[b] of a [U, mod_stride] table belongs to sample b.
#pragma once

#include <cstdint>

namespace spotlight {

// A column of the modulation table: element j of sample b is data[mod_index[b] * stride + j].
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
// x, y: [B, N, d]; mean, rstd: [B, N] saved for the backward.
void LayerNormModulateForward(std::int64_t batch, std::int64_t tokens, std::int64_t width, float eps, const float* x,
                              Modulation shift, Modulation scale, float* y, float* mean, float* rstd);

// dx += d loss / dx; dshift, dscale += over tokens.
void LayerNormModulateBackward(std::int64_t batch, std::int64_t tokens, std::int64_t width, const float* x,
                               const float* mean, const float* rstd, Modulation scale, const float* dy, float* dx,
                               ModulationGradient dshift, ModulationGradient dscale);

// y = x * w / sqrt(mean(x^2) + eps) over rows [rows, width]; rstd [rows] saved.
void RmsNormForward(std::int64_t rows, std::int64_t width, float eps, const float* x, const float* weight, float* y,
                    float* rstd);
// dx (overwritten; may be null), dweight += (may be null).
void RmsNormBackward(std::int64_t rows, std::int64_t width, const float* x, const float* weight, const float* rstd,
                     const float* dy, float* dx, float* dweight);

// x [B, N, d] += gate * branch.
void GatedResidualForward(std::int64_t batch, std::int64_t tokens, std::int64_t width, Modulation gate,
                          const float* branch, float* x);
// dbranch = gate * dx (overwritten); dgate += sum over tokens of dx * branch. dx itself passes on unchanged.
void GatedResidualBackward(std::int64_t batch, std::int64_t tokens, std::int64_t width, Modulation gate,
                           const float* branch, const float* dx, float* dbranch, ModulationGradient dgate);

}  // namespace spotlight
