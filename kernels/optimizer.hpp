// AdamW (decoupled weight decay), gradient norm and exponential moving average over flat parameters.
#pragma once

#include <cstdint>

namespace spotlight {

struct AdamWSettings {
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;  // double: 1 - beta2 keeps its digits
};

// One update number `step` (from 1) with gradient grad * grad_scale:
// w *= 1 - lr*wd; m, v moments; w -= lr * m^ / (sqrt(v^) + eps), as torch.optim.AdamW.
void AdamWUpdate(const AdamWSettings& settings, std::int64_t step, std::int64_t size, float grad_scale,
                 const float* grad, float* weight, float* m, float* v);

// Sum of squares in double; fixed blocks, fixed order.
double SquaredNorm(std::int64_t size, const float* x);

// ema = decay * ema + (1 - decay) * weight, as ema += (1 - decay) (weight - ema): equal values stay equal.
void EmaUpdate(std::int64_t size, double decay, const float* weight, float* ema);

// y += a x.
void Axpy(std::int64_t size, float a, const float* x, float* y);

// y *= a.
void Scale(std::int64_t size, float a, float* y);

// True if all values are finite.
bool AllFinite(std::int64_t size, const float* x);

// values[i] = the sum over the ranks' parts of it in their order, in double, rounded once. Part `own` of 0 ..
// ranks - 1 is `values` itself, part p of the others is parts[p * stride + i]. Fastest where `values` and all parts
// begin equally far from a 16-byte border.
void SumInOrder(std::int64_t size, int ranks, int own, const float* parts, std::int64_t stride, float* values);

}  // namespace spotlight
