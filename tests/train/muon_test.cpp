// Muon's update has nearly equal singular values, whatever those of the gradient.
#include "train/muon.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.hpp"
#include "kernels/linear.hpp"

namespace spotlight {
namespace {

TEST(Muon, OrthogonalisesTheUpdate) {
  for (const auto& [rows, columns] : {std::pair<Index, Index>{24, 24}, {24, 60}, {60, 24}}) {
    std::vector<float> gradient(static_cast<std::size_t>(rows * columns)), weight(gradient.size(), 0.0f);
    std::vector<float> momentum(gradient.size(), 0.0f);
    FillNormal(7, 0, gradient);
    for (Index i = 0; i < rows; ++i) gradient[static_cast<std::size_t>(i * columns)] *= 5.0f;  // badly scaled column
    Muon().Update(rows, columns, 1.0f, 0.95f, 1.0f, gradient.data(), weight.data(), momentum.data());
    // Gram matrix of the smaller side of the update: close to a multiple of one.
    const Index r = std::min(rows, columns);
    std::vector<float> gram(static_cast<std::size_t>(r * r));
    const bool wide = rows <= columns;
    Gemm({.transpose_a = !wide,
          .transpose_b = wide,
          .m = r,
          .n = r,
          .k = std::max(rows, columns),
          .lda = columns,
          .ldb = columns,
          .ldc = r},
         weight.data(), weight.data(), gram.data());
    const float aspect = wide ? 1.0f : static_cast<float>(rows) / static_cast<float>(columns);
    for (Index i = 0; i < r; ++i) {
      for (Index j = 0; j < r; ++j) {
        const float value = gram[static_cast<std::size_t>(i * r + j)] / aspect;
        if (i == j) {
          EXPECT_NEAR(value, 0.9f, 0.55f);  // five iterations bring singular values into about [0.7, 1.2]
        } else {
          EXPECT_NEAR(value, 0.0f, 0.35f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace spotlight
