#include "kernels/norm.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/check.hpp"

namespace spotlight {
namespace {

constexpr std::int64_t kWidths[] = {1, 3, 17, 24, 96, 100};
constexpr std::int64_t kBatch = 3;
constexpr float kEps = 1e-6f;
constexpr std::int64_t kLevels = 2;
const int kIndex[kBatch] = {1, 0, 1};  // two samples share a noise level

// A modulation table [levels, 2 width] with shift (or gate) in the first half of a row, scale in the second.
struct Table {
  Floats values;
  std::int64_t width;

  Modulation Half(int half) const { return {values.data() + half * width, 2 * width, kIndex}; }
};

Table MakeTable(std::int64_t width) { return {Normals(7, kLevels * 2 * width), width}; }

double At(const Doubles& table, std::int64_t width, std::int64_t sample, int half, std::int64_t j) {
  return table[static_cast<std::size_t>(kIndex[sample] * 2 * width + half * width + j)];
}

Doubles LayerNormReference(std::int64_t tokens, std::int64_t width, const Doubles& x, const Doubles& table) {
  Doubles y(x.size());
  for (std::int64_t row = 0; row < kBatch * tokens; ++row) {
    const double* in = x.data() + row * width;
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += in[j] / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) variance += (in[j] - mean) * (in[j] - mean) / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t sample = row / tokens;
      y[static_cast<std::size_t>(row * width + j)] =
          (in[j] - mean) / std::sqrt(variance + kEps) * (1 + At(table, width, sample, 1, j)) +
          At(table, width, sample, 0, j);
    }
  }
  return y;
}

Doubles RmsNormReference(std::int64_t rows, std::int64_t width, const Doubles& x, const Doubles& weight) {
  Doubles y(x.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    double square = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      const double value = x[static_cast<std::size_t>(row * width + j)];
      square += value * value / static_cast<double>(width);
    }
    for (std::int64_t j = 0; j < width; ++j) {
      const auto at = static_cast<std::size_t>(row * width + j);
      y[at] = x[at] * weight[static_cast<std::size_t>(j)] / std::sqrt(square + kEps);
    }
  }
  return y;
}

TEST(LayerNormModulate, ForwardMatchesDouble) {
  for (const std::int64_t width : kWidths) {
    const std::int64_t tokens = 5;
    const Floats x = Normals(1, kBatch * tokens * width);
    const Table table = MakeTable(width);
    Floats y(x.size()), mean(kBatch * tokens), rstd(kBatch * tokens);
    LayerNormModulateForward(kBatch, tokens, width, kEps, x.data(), table.Half(0), table.Half(1), y.data(), mean.data(),
                             rstd.data());
    ExpectClose(y, LayerNormReference(tokens, width, Widen(x), Widen(table.values)), 2e-6);
  }
}

TEST(LayerNormModulate, BackwardMatchesFiniteDifferences) {
  for (const std::int64_t width : {3, 17, 24}) {
    const std::int64_t tokens = 35;  // two token blocks
    const Floats x = Normals(1, kBatch * tokens * width);
    const Floats dy = Normals(2, kBatch * tokens * width);
    const Table table = MakeTable(width);
    Floats y(x.size()), mean(kBatch * tokens), rstd(kBatch * tokens);
    LayerNormModulateForward(kBatch, tokens, width, kEps, x.data(), table.Half(0), table.Half(1), y.data(), mean.data(),
                             rstd.data());
    Floats dx(x.size(), 0.25f), dtable(table.values.size(), 0.5f);  // both are accumulated
    LayerNormModulateBackward(kBatch, tokens, width, x.data(), mean.data(), rstd.data(), table.Half(1), dy.data(),
                              dx.data(), {dtable.data(), 2 * width, kIndex},
                              {dtable.data() + width, 2 * width, kIndex});
    const auto loss_of_x = [&](const Doubles& at) {
      return Dot(LayerNormReference(tokens, width, at, Widen(table.values)), Widen(dy));
    };
    const auto loss_of_table = [&](const Doubles& at) {
      return Dot(LayerNormReference(tokens, width, Widen(x), at), Widen(dy));
    };
    ExpectClose(dx, Plus(NumericGradient(Widen(x), loss_of_x), 0.25), 1e-5);
    ExpectClose(dtable, Plus(NumericGradient(Widen(table.values), loss_of_table), 0.5), 1e-5);

    Floats only_dx(x.size(), 0.25f);
    LayerNormModulateBackward(kBatch, tokens, width, x.data(), mean.data(), rstd.data(), table.Half(1), dy.data(),
                              only_dx.data(), {}, {});
    EXPECT_EQ(only_dx, dx);
  }
}

TEST(LayerNormModulate, ASampleDoesNotFeelItsBatch) {
  const std::int64_t tokens = 7, width = 96;
  const Floats x = Normals(1, kBatch * tokens * width);
  const Table table = MakeTable(width);
  Floats y(x.size()), mean(kBatch * tokens), rstd(kBatch * tokens);
  LayerNormModulateForward(kBatch, tokens, width, kEps, x.data(), table.Half(0), table.Half(1), y.data(), mean.data(),
                           rstd.data());
  const std::int64_t last = (kBatch - 1) * tokens * width;
  Floats alone(tokens * width);
  const int level = kIndex[kBatch - 1];
  LayerNormModulateForward(1, tokens, width, kEps, x.data() + last, {table.values.data(), 2 * width, &level},
                           {table.values.data() + width, 2 * width, &level}, alone.data(), mean.data(), rstd.data());
  EXPECT_EQ(alone, Slice(y, last, tokens * width));
}

TEST(RmsNorm, ForwardAndBackwardMatchDouble) {
  const std::int64_t rows = 35;
  for (const std::int64_t width : kWidths) {
    const Floats x = Normals(1, rows * width), dy = Normals(2, rows * width), weight = Normals(3, width);
    Floats y(x.size()), rstd(rows), dx(x.size()), dweight(weight.size(), 0.5f);
    RmsNormForward(rows, width, kEps, x.data(), weight.data(), y.data(), rstd.data());
    ExpectClose(y, RmsNormReference(rows, width, Widen(x), Widen(weight)), 1e-6);
    RmsNormBackward(rows, width, x.data(), weight.data(), rstd.data(), dy.data(), dx.data(), dweight.data());
    const auto loss_of_weight = [&](const Doubles& at) {
      return Dot(RmsNormReference(rows, width, Widen(x), at), Widen(dy));
    };
    ExpectClose(dweight, Plus(NumericGradient(Widen(weight), loss_of_weight), 0.5), 1e-5);
    if (width == 1 || width > 24) continue;  // width 1: y is a sign, its slope is eps
    const auto loss_of_x = [&](const Doubles& at) {
      return Dot(RmsNormReference(rows, width, at, Widen(weight)), Widen(dy));
    };
    ExpectClose(dx, NumericGradient(Widen(x), loss_of_x), 2e-5);
    Floats only_dx(x.size());
    RmsNormBackward(rows, width, x.data(), weight.data(), rstd.data(), dy.data(), only_dx.data(), nullptr);
    EXPECT_EQ(only_dx, dx);
    Floats only_dweight(weight.size(), 0.5f);
    RmsNormBackward(rows, width, x.data(), weight.data(), rstd.data(), dy.data(), nullptr, only_dweight.data());
    EXPECT_EQ(only_dweight, dweight);
  }
}

TEST(GatedResidual, ForwardAndBackwardMatchDouble) {
  const std::int64_t tokens = 35;
  for (const std::int64_t width : kWidths) {
    const std::int64_t size = kBatch * tokens * width;
    const Table table = MakeTable(width);
    const Floats branch = Normals(1, size), start = Normals(2, size), dx = Normals(3, size);
    Floats x = start, dbranch(branch.size()), dtable(table.values.size(), 0.5f);
    GatedResidualForward(kBatch, tokens, width, table.Half(0), branch.data(), x.data());
    GatedResidualBackward(kBatch, tokens, width, table.Half(0), branch.data(), dx.data(), dbranch.data(),
                          {dtable.data(), 2 * width, kIndex});
    const Doubles wide_table = Widen(table.values);
    Doubles expected_x = Widen(start), expected_dbranch(branch.size()), expected_dtable(dtable.size(), 0.5);
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::int64_t sample = i / (tokens * width), j = i % width;
      const double gate = At(wide_table, width, sample, 0, j);
      expected_x[at] += gate * branch[at];
      expected_dbranch[at] = gate * dx[at];
      expected_dtable[static_cast<std::size_t>(kIndex[sample] * 2 * width + j)] +=
          static_cast<double>(dx[at]) * branch[at];
    }
    ExpectClose(x, expected_x, 1e-6);
    ExpectClose(dbranch, expected_dbranch, 1e-6);
    ExpectClose(dtable, expected_dtable, 1e-5);
  }
}

}  // namespace
}  // namespace spotlight
