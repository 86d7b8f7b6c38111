#include "train/muon.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/buffer.hpp"
#include "kernels/linear.hpp"
#include "kernels/optimizer.hpp"

namespace spotlight {
namespace {

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;  // steepest quintic that stays bounded
constexpr int kIterations = 5;

void Transpose(Index rows, Index columns, const float* from, float* to) {
  ZeroFloats(to, rows * columns);
  AddTransposed(rows, columns, from, to, rows);
}

}  // namespace

void Muon::Update(Index rows, Index columns, float lr, float beta, float gradient_scale, const float* gradient,
                  float* weight, float* momentum) {
  const Index size = rows * columns;
  Scale(size, beta, momentum);
  Axpy(size, (1.0f - beta) * gradient_scale, gradient, momentum);
  x_.Resize(size);
  x_.Zero();
  Axpy(size, (1.0f - beta) * gradient_scale, gradient, x_.data());
  Axpy(size, beta, momentum, x_.data());
  const float norm = static_cast<float>(std::sqrt(SquaredNorm(size, x_.data())));
  Scale(size, 1.0f / (norm + 1e-7f), x_.data());
  if (rows <= columns) {
    NewtonSchulz(rows, columns, x_);
  } else {  // the smaller side makes the smaller Gram matrix
    transposed_.Resize(size);
    Transpose(rows, columns, x_.data(), transposed_.data());
    NewtonSchulz(columns, rows, transposed_);
    Transpose(columns, rows, transposed_.data(), x_.data());
  }
  const float aspect = std::sqrt(std::max(1.0f, static_cast<float>(rows) / static_cast<float>(columns)));
  Axpy(size, -lr * aspect, x_.data(), weight);
}

void Muon::NewtonSchulz(Index r, Index c, Buffer& x) {
  gram_.Resize(r * r);
  gram2_.Resize(r * r);
  product_.Resize(r * c);
  for (int i = 0; i < kIterations; ++i) {
    Gemm({.transpose_b = true, .m = r, .n = r, .k = c, .lda = c, .ldb = c, .ldc = r}, x.data(), x.data(), gram_.data());
    Gemm({.m = r, .n = r, .k = r, .lda = r, .ldb = r, .ldc = r}, gram_.data(), gram_.data(), gram2_.data());
    Scale(r * r, kC, gram2_.data());
    Axpy(r * r, kB, gram_.data(), gram2_.data());  // b A + c A^2
    Gemm({.m = r, .n = c, .k = r, .lda = r, .ldb = c, .ldc = c}, gram2_.data(), x.data(), product_.data());
    Scale(r * c, kA, x.data());
    Axpy(r * c, 1.0f, product_.data(), x.data());
  }
}

}  // namespace spotlight
