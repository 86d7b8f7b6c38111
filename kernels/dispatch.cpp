// Public operations: each is the one of the active back end.
#include "kernels/operations.hpp"
#include "kernels/recordings.hpp"

namespace spotlight {
namespace {

constinit const Operations* active = nullptr;

}  // namespace

const Operations& ActiveOperations() { return active == nullptr ? KokkosOperations() : *active; }

void UseOperations(const Operations& operations) { active = &operations; }

void* AllocateMemory(std::size_t bytes) {
  void* const memory = ActiveOperations().AllocateMemory(bytes);
  NoteAllocated(memory);
  return memory;
}

void FreeMemory(void* memory) {
  NoteFreed(memory);
  ActiveOperations().FreeMemory(memory);
}

void CopyIn(void* to, const void* host, std::size_t bytes) { ActiveOperations().CopyIn(to, host, bytes); }

void CopyOut(void* host, const void* from, std::size_t bytes) { ActiveOperations().CopyOut(host, from, bytes); }

void ZeroMemory(void* to, std::size_t bytes) { ActiveOperations().ZeroMemory(to, bytes); }

void* LaunchQueue() { return ActiveOperations().LaunchQueue(); }

void KeepRows(Activations values, const TokenRows& rows, std::int64_t width, std::span<const std::int64_t> kept) {
  ActiveOperations().KeepRows(values, rows, width, kept);
}

void CopyFloats(const float* from, float* to, std::int64_t size) { ActiveOperations().CopyFloats(from, to, size); }

void ZeroFloats(float* to, std::int64_t size) { ActiveOperations().ZeroFloats(to, size); }

void RoundToBfloat16(std::int64_t size, const float* from, Bfloat16* to) {
  ActiveOperations().RoundToBfloat16(size, from, to);
}

void GeluForward(std::int64_t size, ConstActivations x, Activations y) { ActiveOperations().GeluForward(size, x, y); }

void GeluBackward(std::int64_t size, ConstActivations x, ConstActivations dy, Activations dx) {
  ActiveOperations().GeluBackward(size, x, dy, dx);
}

void SiluForward(std::int64_t size, const float* x, float* y) { ActiveOperations().SiluForward(size, x, y); }

void SiluBackward(std::int64_t size, const float* x, const float* dy, float* dx) {
  ActiveOperations().SiluBackward(size, x, dy, dx);
}

void TimeSinusoid(std::int64_t rows, const float* t, float* e) { ActiveOperations().TimeSinusoid(rows, t, e); }

void AttentionForward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                      const std::uint8_t* text_mask, Activations out_text, Activations out_image, float* lse) {
  ActiveOperations().AttentionForward(shape, q, k, v, text_mask, out_text, out_image, lse);
}

void AttentionBackward(const AttentionShape& shape, ConstActivations q, ConstActivations k, ConstActivations v,
                       const std::uint8_t* text_mask, ConstActivations out_text, ConstActivations out_image,
                       const float* lse, ConstActivations dout_text, ConstActivations dout_image, Activations dq,
                       Activations dk, Activations dv) {
  ActiveOperations().AttentionBackward(shape, q, k, v, text_mask, out_text, out_image, lse, dout_text, dout_image, dq,
                                       dk, dv);
}

void CopyBlocks(std::span<const BlockCopy> blocks, ConstActivations from, Activations to) {
  ActiveOperations().CopyBlocks(blocks, from, to);
}

void PackConvolution(const ConvolutionShape& shape, std::span<const float> weight, std::span<const float> bias,
                     Buffer& packed_weight, Buffer& packed_bias) {
  ActiveOperations().PackConvolution(shape, weight, bias, packed_weight, packed_bias);
}

void Convolve(const ConvolutionShape& shape, const Buffer& packed_weight, const Buffer& packed_bias,
              const ConvolutionBand& band, const float* x, float* y) {
  ActiveOperations().Convolve(shape, packed_weight, packed_bias, band, x, y);
}

void GuidanceForward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                     float* v) {
  ActiveOperations().GuidanceForward(batch, size, channels, scale, pairs, v);
}

void GuidanceBackward(std::int64_t batch, std::int64_t size, std::int64_t channels, float scale, const float* pairs,
                      const float* dv, float* dpairs) {
  ActiveOperations().GuidanceBackward(batch, size, channels, scale, pairs, dv, dpairs);
}

void NormalNoise(std::int64_t batch, std::int64_t size, const std::uint64_t* keys, float* out) {
  ActiveOperations().NormalNoise(batch, size, keys, out);
}

void PackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* latents,
                 float* packed) {
  ActiveOperations().PackLatents(batch, channels, h, w, latents, packed);
}

void UnpackLatents(std::int64_t batch, std::int64_t channels, std::int64_t h, std::int64_t w, const float* packed,
                   float* latents) {
  ActiveOperations().UnpackLatents(batch, channels, h, w, packed, latents);
}

void Gemm(const GemmShape& shape, ConstActivations a, ConstActivations b, Activations c) {
  ActiveOperations().Gemm(shape, a, b, c);
}

void LinearForward(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                   WeightMatrix weight, const float* bias, Activations y, std::int64_t ldy) {
  ActiveOperations().LinearForward(rows, in, out, x, ldx, weight, bias, y, ldy);
}

void LinearBackwardInput(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations dy, std::int64_t ldy,
                         WeightMatrix weight, Activations dx, std::int64_t ldx, bool accumulate) {
  ActiveOperations().LinearBackwardInput(rows, in, out, dy, ldy, weight, dx, ldx, accumulate);
}

void LinearBackwardWeight(std::int64_t rows, std::int64_t in, std::int64_t out, ConstActivations x, std::int64_t ldx,
                          ConstActivations dy, std::int64_t ldy, float* dweight, float* dbias, WorkShare share) {
  ActiveOperations().LinearBackwardWeight(rows, in, out, x, ldx, dy, ldy, dweight, dbias, share);
}

void LinearBackwardWeightInSlices(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t slice,
                                  ConstActivations x, std::int64_t ldx, ConstActivations dy, std::int64_t ldy,
                                  float* dweight) {
  ActiveOperations().LinearBackwardWeightInSlices(rows, in, out, slice, x, ldx, dy, ldy, dweight);
}

void AddTransposed(std::int64_t rows, std::int64_t columns, const float* from, float* to, std::int64_t ld_to) {
  ActiveOperations().AddTransposed(rows, columns, from, to, ld_to);
}

void LayerNormModulateForward(const TokenRows& rows, std::int64_t width, float eps, const float* x, Modulation shift,
                              Modulation scale, Activations y, float* mean, float* rstd) {
  ActiveOperations().LayerNormModulateForward(rows, width, eps, x, shift, scale, y, mean, rstd);
}

void LayerNormModulateBackward(const TokenRows& rows, std::int64_t width, const float* x, const float* mean,
                               const float* rstd, Modulation scale, ConstActivations dy, float* dx,
                               ModulationGradient dshift, ModulationGradient dscale) {
  ActiveOperations().LayerNormModulateBackward(rows, width, x, mean, rstd, scale, dy, dx, dshift, dscale);
}

void RmsNormForward(std::int64_t rows, std::int64_t width, float eps, const float* x, const float* weight,
                    Activations y, float* rstd) {
  ActiveOperations().RmsNormForward(rows, width, eps, x, weight, y, rstd);
}

void RmsNormBackward(std::int64_t rows, std::int64_t width, const float* x, const float* weight, const float* rstd,
                     ConstActivations dy, float* dx, float* dweight) {
  ActiveOperations().RmsNormBackward(rows, width, x, weight, rstd, dy, dx, dweight);
}

void GatedResidualForward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                          float* x) {
  ActiveOperations().GatedResidualForward(rows, width, gate, branch, x);
}

void GatedResidualLayerNorm(const TokenRows& rows, std::int64_t width, float eps, Modulation gate,
                            ConstActivations branch, float* x, Modulation shift, Modulation scale, Activations y,
                            float* mean, float* rstd) {
  ActiveOperations().GatedResidualLayerNorm(rows, width, eps, gate, branch, x, shift, scale, y, mean, rstd);
}

void GatedResidualBackward(const TokenRows& rows, std::int64_t width, Modulation gate, ConstActivations branch,
                           const float* dx, Activations dbranch, ModulationGradient dgate) {
  ActiveOperations().GatedResidualBackward(rows, width, gate, branch, dx, dbranch, dgate);
}

void AdamWUpdate(const AdamWSettings& settings, std::int64_t step, std::int64_t size, float grad_scale,
                 const float* grad, float* weight, float* m, float* v) {
  ActiveOperations().AdamWUpdate(settings, step, size, grad_scale, grad, weight, m, v);
}

double SquaredNorm(std::int64_t size, const float* x) { return ActiveOperations().SquaredNorm(size, x); }

void EmaUpdate(std::int64_t size, double decay, const float* weight, float* ema) {
  ActiveOperations().EmaUpdate(size, decay, weight, ema);
}

void Axpy(std::int64_t size, float a, const float* x, float* y) { ActiveOperations().Axpy(size, a, x, y); }

void Scale(std::int64_t size, float a, float* y) { ActiveOperations().Scale(size, a, y); }

bool AllFinite(std::int64_t size, const float* x) { return ActiveOperations().AllFinite(size, x); }

void SumInOrder(std::int64_t size, int ranks, int own, const float* parts, std::int64_t stride, float* values) {
  ActiveOperations().SumInOrder(size, ranks, own, parts, stride, values);
}

void NormPixels(std::int64_t pixels, std::int64_t channels, const float* x, const float* gamma, bool silu, float* y) {
  ActiveOperations().NormPixels(pixels, channels, x, gamma, silu, y);
}

void QkRopeForward(const QkRopeShape& shape, ConstActivations qkv, const float* norm_q, const float* norm_k,
                   const float* cos, const float* sin, Activations q, Activations k, Activations v) {
  ActiveOperations().QkRopeForward(shape, qkv, norm_q, norm_k, cos, sin, q, k, v);
}

void QkRopeBackward(const QkRopeShape& shape, ConstActivations qkv, const float* norm_q, const float* norm_k,
                    const float* cos, const float* sin, ConstActivations dq, ConstActivations dk, ConstActivations dv,
                    Activations dqkv, float* dnorm_q, float* dnorm_k) {
  ActiveOperations().QkRopeBackward(shape, qkv, norm_q, norm_k, cos, sin, dq, dk, dv, dqkv, dnorm_q, dnorm_k);
}

void SdeStep(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* z, float* x_next) {
  ActiveOperations().SdeStep(batch, size, coefficients, x, v, z, x_next);
}

void LogProb(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* x_next, float* log_prob) {
  ActiveOperations().LogProb(batch, size, coefficients, x, v, x_next, log_prob);
}

void LogProbBackward(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
                     const float* v, const float* x_next, const float* v_reference, const float* dlog_prob,
                     const float* dkl, float* dv) {
  ActiveOperations().LogProbBackward(batch, size, coefficients, x, v, x_next, v_reference, dlog_prob, dkl, dv);
}

void StepKl(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* v,
            const float* v_reference, float* kl) {
  ActiveOperations().StepKl(batch, size, coefficients, v, v_reference, kl);
}

void RowChanges(std::int64_t rows, std::int64_t width, const float* x, const float* last, float* sums) {
  ActiveOperations().RowChanges(rows, width, x, last, sums);
}

void Subtract(std::int64_t size, const float* x, const float* y, float* difference) {
  ActiveOperations().Subtract(size, x, y, difference);
}

void MergeRows(std::int64_t rows, std::int64_t width, const std::int64_t* place, const float* before,
               const float* computed, float* residual, float* after) {
  ActiveOperations().MergeRows(rows, width, place, before, computed, residual, after);
}

std::unique_ptr<HostCopy> MakeHostCopy() { return ActiveOperations().MakeHostCopy(); }

std::unique_ptr<LaunchTimer> MakeLaunchTimer() { return ActiveOperations().MakeLaunchTimer(); }

std::unique_ptr<LaunchGraph> Record(const std::function<void()>& launches) {
  return ActiveOperations().Record(launches);
}

void BeginPhase(const char* name) { ActiveOperations().BeginPhase(name); }

void EndPhase() { ActiveOperations().EndPhase(); }

}  // namespace spotlight
