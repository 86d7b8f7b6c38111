// Muon: momentum orthogonalised by Newton-Schulz iterations, for weight matrices (Jordan et al. 2024,
// github.com/KellerJordan/Muon: quintic coefficients, Nesterov form).
#pragma once

#include "base/tensor.hpp"
#include "kernels/buffer.hpp"

namespace spotlight {

class Muon {
 public:
  // weight, gradient, momentum: [rows, columns]. One update:
  //   m = beta m + (1 - beta) g;  u = orthogonalise((1 - beta) g + beta m);  w -= lr sqrt(max(1, rows / columns)) u
  // g is gradient * gradient_scale.
  void Update(Index rows, Index columns, float lr, float beta, float gradient_scale, const float* gradient,
              float* weight, float* momentum);

 private:
  // x [r, c], r <= c, scaled to Frobenius norm 1 -> approximately U V^T of its singular value decomposition.
  void NewtonSchulz(Index r, Index c, Buffer& x);

  Buffer x_, transposed_, gram_, gram2_, product_;
};

}  // namespace spotlight
