#include <algorithm>
#include <cmath>

#include "kernels/lanes.hpp"
#include "kernels/operations_kokkos.hpp"
#include "kernels/parallel.hpp"
#include "kernels/partial_sums.hpp"

namespace spotlight::kokkos {
namespace {

inline const float* ModulationRow(const Modulation& modulation, std::int64_t sample) {
  return modulation.data + modulation.index[sample] * modulation.stride;
}

inline void AddGated(std::int64_t width, const float* gate, const float* branch, float* x) {
  for (std::int64_t j = 0; j < width; ++j) x[j] = std::fma(gate[j], branch[j], x[j]);
}

// LayerNorm and modulation of one row.
inline void NormaliseRow(std::int64_t width, float eps, const float* x, const float* shift, const float* scale,
                         float* y, float* mean, float* rstd) {
  const float mu = LaneSum(width, [=](std::int64_t j) { return x[j]; }) / static_cast<float>(width);
  const float square_sum = LaneSum(width, [=](std::int64_t j) { return (x[j] - mu) * (x[j] - mu); });
  const float r = 1.0f / std::sqrt(square_sum / static_cast<float>(width) + eps);
  for (std::int64_t j = 0; j < width; ++j) y[j] = std::fma((x[j] - mu) * r, 1.0f + scale[j], shift[j]);
  *mean = mu;
  *rstd = r;
}

}  // namespace

void LayerNormModulateForward(const TokenRows& rows, std::int64_t width, float eps, const float* x, Modulation shift,
                              Modulation scale, Activations result, float* mean, float* rstd) {
  float* y = result.As<float>();
  ParallelFor("LayerNormModulateForward", rows.rows(), [=](std::int64_t row) {
    const std::int64_t sample = rows.sample[row];
    NormaliseRow(width, eps, x + row * width, ModulationRow(shift, sample), ModulationRow(scale, sample),
                 y + row * width, mean + row, rstd + row);
  });
}

void LayerNormModulateBackward(const TokenRows& rows, std::int64_t width, const float* x, const float* mean,
                               const float* rstd, Modulation scale, ConstActivations gradient, float* dx,
                               ModulationGradient dshift, ModulationGradient dscale) {
  const float* dy = gradient.As<float>();
  // Through y = h (1 + scale) + shift, h = (x - mean) rstd, with g = dy (1 + scale):
  //   dx = rstd (g - mean(g) - h mean(g h)),   dscale = sum dy h,   dshift = sum dy.
  const std::int64_t blocks = TokenBlocks(rows.most_tokens());
  const bool want_sums = dshift.data != nullptr || dscale.data != nullptr;
  float* partials = want_sums ? KernelScratch(rows.batch * blocks * 2 * width) : nullptr;
  ParallelFor("LayerNormModulateBackward", rows.batch * blocks, [=](std::int64_t item) {
    const std::int64_t sample = item / blocks;
    const std::int64_t first = rows.first[sample] + item % blocks * kTokenBlock;
    const std::int64_t end = std::min(rows.first[sample + 1], first + kTokenBlock);
    const float* scale_row = ModulationRow(scale, sample);
    float* shift_sum = want_sums ? partials + item * 2 * width : nullptr;
    float* scale_sum = want_sums ? shift_sum + width : nullptr;
    if (want_sums) std::fill_n(shift_sum, 2 * width, 0.0f);
    for (std::int64_t row = first; row < end; ++row) {
      const float* in = x + row * width;
      const float* grad = dy + row * width;
      const float mu = mean[row];
      const float r = rstd[row];
      if (want_sums) {
        for (std::int64_t j = 0; j < width; ++j) {
          shift_sum[j] += grad[j];
          scale_sum[j] += grad[j] * ((in[j] - mu) * r);
        }
      }
      if (dx == nullptr) continue;
      float* out = dx + row * width;
      const float g_mean =
          LaneSum(width, [=](std::int64_t j) { return grad[j] * (1.0f + scale_row[j]); }) / static_cast<float>(width);
      const float gh_mean =
          LaneSum(width, [=](std::int64_t j) { return grad[j] * (1.0f + scale_row[j]) * ((in[j] - mu) * r); }) /
          static_cast<float>(width);
      for (std::int64_t j = 0; j < width; ++j) {
        const float h = (in[j] - mu) * r;
        out[j] += r * (std::fma(grad[j], 1.0f + scale_row[j], -g_mean) - h * gh_mean);
      }
    }
  });
  if (!want_sums) return;
  AddPartialSums(rows.batch, blocks, width, partials, 2 * width, dshift);
  AddPartialSums(rows.batch, blocks, width, partials + width, 2 * width, dscale);
}

void RmsNormForward(std::int64_t rows, std::int64_t width, float eps, const float* x, const float* weight,
                    Activations result, float* rstd) {
  float* y = result.As<float>();
  ParallelFor("RmsNormForward", rows, [=](std::int64_t row) {
    const float* in = x + row * width;
    float* out = y + row * width;
    const float square_sum = LaneSum(width, [=](std::int64_t j) { return in[j] * in[j]; });
    const float r = 1.0f / std::sqrt(square_sum / static_cast<float>(width) + eps);
    for (std::int64_t j = 0; j < width; ++j) out[j] = in[j] * r * weight[j];
    rstd[row] = r;
  });
}

void RmsNormBackward(std::int64_t rows, std::int64_t width, const float* x, const float* weight, const float* rstd,
                     ConstActivations gradient, float* dx, float* dweight) {
  const float* dy = gradient.As<float>();
  // With h = x rstd and g = dy weight: dx = rstd (g - h mean(g h)), dweight = sum dy h.
  const std::int64_t blocks = TokenBlocks(rows);
  float* partials = dweight != nullptr ? KernelScratch(blocks * width) : nullptr;
  ParallelFor("RmsNormBackward", blocks, [=](std::int64_t block) {
    float* sum = partials != nullptr ? partials + block * width : nullptr;
    if (sum != nullptr) std::fill_n(sum, width, 0.0f);
    for (std::int64_t row = block * kTokenBlock; row < std::min(rows, (block + 1) * kTokenBlock); ++row) {
      const float* in = x + row * width;
      const float* grad = dy + row * width;
      const float r = rstd[row];
      if (sum != nullptr) {
        for (std::int64_t j = 0; j < width; ++j) sum[j] += grad[j] * (in[j] * r);
      }
      if (dx == nullptr) continue;
      float* out = dx + row * width;
      const float gh_mean =
          LaneSum(width, [=](std::int64_t j) { return grad[j] * weight[j] * (in[j] * r); }) / static_cast<float>(width);
      for (std::int64_t j = 0; j < width; ++j) out[j] = r * (grad[j] * weight[j] - in[j] * r * gh_mean);
    }
  });
  AddPartialSums(1, blocks, width, partials, width, {.data = dweight});
}

void GatedResidualForward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                          float* x) {
  const float* in = branch.As<float>();
  ParallelFor("GatedResidualForward", rows.rows(), [=](std::int64_t row) {
    AddGated(width, ModulationRow(gate, rows.sample[row]), in + row * width, x + row * width);
  });
}

void GatedResidualLayerNorm(const TokenRows& rows, std::int64_t width, float eps, Modulation gate,
                            ConstActivations branch, float* x, Modulation shift, Modulation scale, Activations result,
                            float* mean, float* rstd) {
  const float* in = branch.As<float>();
  float* y = result.As<float>();
  ParallelFor("GatedResidualLayerNorm", rows.rows(), [=](std::int64_t row) {
    const std::int64_t sample = rows.sample[row];
    AddGated(width, ModulationRow(gate, sample), in + row * width, x + row * width);
    NormaliseRow(width, eps, x + row * width, ModulationRow(shift, sample), ModulationRow(scale, sample),
                 y + row * width, mean + row, rstd + row);
  });
}

void GatedResidualBackward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations added,
                           const float* dx, Activations dadded, ModulationGradient dgate) {
  const float* branch = added.As<float>();
  float* dbranch = dadded.As<float>();
  const std::int64_t blocks = TokenBlocks(rows.most_tokens());
  float* partials = dgate.data != nullptr ? KernelScratch(rows.batch * blocks * width) : nullptr;
  ParallelFor("GatedResidualBackward", rows.batch * blocks, [=](std::int64_t item) {
    const std::int64_t sample = item / blocks;
    const std::int64_t first = rows.first[sample] + item % blocks * kTokenBlock;
    const std::int64_t end = std::min(rows.first[sample + 1], first + kTokenBlock);
    const float* gate_row = ModulationRow(gate, sample);
    float* sum = partials != nullptr ? partials + item * width : nullptr;
    if (sum != nullptr) std::fill_n(sum, width, 0.0f);
    for (std::int64_t row = first; row < end; ++row) {
      const std::int64_t offset = row * width;
      const float* grad = dx + offset;
      const float* in = branch + offset;
      if (sum != nullptr) {
        for (std::int64_t j = 0; j < width; ++j) sum[j] += grad[j] * in[j];
      }
      if (dbranch == nullptr) continue;
      float* out = dbranch + offset;
      for (std::int64_t j = 0; j < width; ++j) out[j] = gate_row[j] * grad[j];
    }
  });
  AddPartialSums(rows.batch, blocks, width, partials, width, dgate);
}

}  // namespace spotlight::kokkos
