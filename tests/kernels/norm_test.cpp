// Normalisations against double, of samples of equal and of different lengths.
#include "kernels/norm.hpp"

#include <gtest/gtest.h>

#include <array>

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

Doubles LayerNormReference(const TokenRows& rows, std::int64_t width, const Doubles& x, const Doubles& table) {
  Doubles y(x.size());
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    const double* in = x.data() + row * width;
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < width; ++j) mean += in[j] / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) variance += (in[j] - mean) * (in[j] - mean) / static_cast<double>(width);
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t sample = rows.sample[row];
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

// Samples of equal length, and of lengths with none, one and several token blocks.
const TokenRowTable kEqual({35, 35, 35}), kRagged({35, 0, 4}), kRaggedLate({0, 3, 70});

struct LayerNormResult {
  Floats y, mean, rstd, dx, dtable;
};

// dx and the table's gradient are accumulated: they start at 0.25 and 0.5.
LayerNormResult LayerNorm(const TokenRows& rows, std::int64_t width, const Floats& x, const Floats& dy,
                          const Table& table, const int* index = kIndex) {
  const std::int64_t stride = 2 * width;
  const Modulation shift = {table.values.data(), stride, index}, scale = {table.values.data() + width, stride, index};
  const auto size = static_cast<std::size_t>(rows.rows());
  LayerNormResult result{.y = Floats(x.size()),
                         .mean = Floats(size),
                         .rstd = Floats(size),
                         .dx = Floats(x.size(), 0.25f),
                         .dtable = Floats(table.values.size(), 0.5f)};
  LayerNormModulateForward(rows, width, kEps, x.data(), shift, scale, result.y.data(), result.mean.data(),
                           result.rstd.data());
  LayerNormModulateBackward(rows, width, x.data(), result.mean.data(), result.rstd.data(), scale, dy.data(),
                            result.dx.data(), {result.dtable.data(), stride, index},
                            {result.dtable.data() + width, stride, index});
  return result;
}

TEST(LayerNormModulate, ForwardMatchesDouble) {
  for (const TokenRowTable& samples : {kEqual, kRagged, kRaggedLate}) {
    const TokenRows rows = samples.view();
    for (const std::int64_t width : kWidths) {
      const Floats x = Normals(1, rows.rows() * width);
      const Table table = MakeTable(width);
      ExpectClose(LayerNorm(rows, width, x, x, table).y, LayerNormReference(rows, width, Widen(x), Widen(table.values)),
                  3e-6);
    }
  }
}

TEST(LayerNormModulate, BackwardMatchesFiniteDifferences) {
  for (const TokenRowTable& samples : {kEqual, kRagged, kRaggedLate}) {
    const TokenRows rows = samples.view();
    for (const std::int64_t width : {3, 17, 24}) {
      const Floats x = Normals(1, rows.rows() * width), dy = Normals(2, rows.rows() * width);
      const Table table = MakeTable(width);
      const LayerNormResult result = LayerNorm(rows, width, x, dy, table);
      const auto loss_of_x = [&](const Doubles& at) {
        return Dot(LayerNormReference(rows, width, at, Widen(table.values)), Widen(dy));
      };
      const auto loss_of_table = [&](const Doubles& at) {
        return Dot(LayerNormReference(rows, width, Widen(x), at), Widen(dy));
      };
      ExpectClose(result.dx, Plus(NumericGradient(Widen(x), loss_of_x), 0.25), 1e-5);
      ExpectClose(result.dtable, Plus(NumericGradient(Widen(table.values), loss_of_table), 0.5), 1e-5);

      Floats only_dx(x.size(), 0.25f);
      LayerNormModulateBackward(rows, width, x.data(), result.mean.data(), result.rstd.data(), table.Half(1), dy.data(),
                                only_dx.data(), {}, {});
      EXPECT_EQ(only_dx, result.dx);
      Floats only_dtable(table.values.size(), 0.5f);
      LayerNormModulateBackward(rows, width, x.data(), result.mean.data(), result.rstd.data(), table.Half(1), dy.data(),
                                nullptr, {only_dtable.data(), 2 * width, kIndex},
                                {only_dtable.data() + width, 2 * width, kIndex});
      EXPECT_EQ(only_dtable, result.dtable);
    }
  }
}

TEST(LayerNormModulate, ASampleDoesNotFeelItsBatch) {
  const std::int64_t width = 96;
  const int levels[kBatch] = {0, 1, 2};  // each its own: the sums over tokens are then a sample's own too
  const Table table = {Normals(7, kBatch * 2 * width), width};
  for (const TokenRowTable& samples : {kEqual, kRagged, kRaggedLate}) {
    const TokenRows rows = samples.view();
    const Floats x = Normals(1, rows.rows() * width), dy = Normals(2, rows.rows() * width);
    const LayerNormResult all = LayerNorm(rows, width, x, dy, table, levels);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const TokenRowTable one({rows.tokens(b)});
      const LayerNormResult alone =
          LayerNorm(one.view(), width, SampleOf(x, rows, b, width), SampleOf(dy, rows, b, width), table, levels + b);
      EXPECT_EQ(alone.y, SampleOf(all.y, rows, b, width)) << b;
      EXPECT_EQ(alone.mean, SampleOf(all.mean, rows, b, 1)) << b;
      EXPECT_EQ(alone.rstd, SampleOf(all.rstd, rows, b, 1)) << b;
      EXPECT_EQ(alone.dx, SampleOf(all.dx, rows, b, width)) << b;
      EXPECT_EQ(Slice(alone.dtable, b * 2 * width, 2 * width), Slice(all.dtable, b * 2 * width, 2 * width)) << b;
    }
  }
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
  for (const TokenRowTable& samples : {kEqual, kRagged, kRaggedLate}) {
    const TokenRows rows = samples.view();
    for (const std::int64_t width : kWidths) {
      const std::int64_t size = rows.rows() * width;
      const Table table = MakeTable(width);
      const Floats branch = Normals(1, size), start = Normals(2, size), dx = Normals(3, size);
      Floats x = start, dbranch(branch.size()), dtable(table.values.size(), 0.5f);
      GatedResidualForward(rows, width, table.Half(0), branch.data(), x.data());
      GatedResidualBackward(rows, width, table.Half(0), branch.data(), dx.data(), dbranch.data(),
                            {dtable.data(), 2 * width, kIndex});
      const Doubles wide_table = Widen(table.values);
      Doubles expected_x = Widen(start), expected_dbranch(branch.size()), expected_dtable(dtable.size(), 0.5);
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t sample = rows.sample[i / width], j = i % width;
        const double gate = At(wide_table, width, sample, 0, j);
        expected_x[at] += gate * branch[at];
        expected_dbranch[at] = gate * dx[at];
        expected_dtable[static_cast<std::size_t>(kIndex[sample] * 2 * width + j)] +=
            static_cast<double>(dx[at]) * branch[at];
      }
      ExpectClose(x, expected_x, 1e-6);
      ExpectClose(dbranch, expected_dbranch, 1e-6);
      ExpectClose(dtable, expected_dtable, 1e-5);
      Floats only_dtable(table.values.size(), 0.5f);
      GatedResidualBackward(rows, width, table.Half(0), branch.data(), dx.data(), nullptr,
                            {only_dtable.data(), 2 * width, kIndex});
      EXPECT_EQ(only_dtable, dtable);
      Floats only_dbranch(branch.size());
      GatedResidualBackward(rows, width, table.Half(0), branch.data(), dx.data(), only_dbranch.data(), {});
      EXPECT_EQ(only_dbranch, dbranch);
    }
  }
}

TEST(GatedResidual, ASampleDoesNotFeelItsBatch) {
  const std::int64_t width = 96;
  const int levels[kBatch] = {0, 1, 2};
  const Floats table = Normals(7, kBatch * width);
  for (const TokenRowTable& samples : {kRagged, kRaggedLate}) {
    const TokenRows rows = samples.view();
    const Floats branch = Normals(1, rows.rows() * width), dx = Normals(3, rows.rows() * width);
    const auto run = [&](const TokenRows& of, const int* index, const Floats& in, const Floats& grad) {
      Floats x(in.size(), 1.0f), dbranch(in.size()), dtable(table.size());
      GatedResidualForward(of, width, {table.data(), width, index}, in.data(), x.data());
      GatedResidualBackward(of, width, {table.data(), width, index}, in.data(), grad.data(), dbranch.data(),
                            {dtable.data(), width, index});
      return std::array{x, dbranch, dtable};
    };
    const auto all = run(rows, levels, branch, dx);
    for (std::int64_t b = 0; b < kBatch; ++b) {
      const TokenRowTable one({rows.tokens(b)});
      const auto alone = run(one.view(), levels + b, SampleOf(branch, rows, b, width), SampleOf(dx, rows, b, width));
      EXPECT_EQ(alone[0], SampleOf(all[0], rows, b, width)) << b;
      EXPECT_EQ(alone[1], SampleOf(all[1], rows, b, width)) << b;
      EXPECT_EQ(Slice(alone[2], b * width, width), Slice(all[2], b * width, width)) << b;
    }
  }
}

TEST(GatedResidualLayerNorm, HasTheBitsOfTheTwoOperations) {
  for (const TokenRowTable& samples : {kEqual, kRagged, kRaggedLate}) {
    const TokenRows rows = samples.view();
    for (const std::int64_t width : kWidths) {
      const auto count = static_cast<std::size_t>(rows.rows());
      const Table table = MakeTable(width), gates = {Normals(8, kLevels * 2 * width), width};
      const Floats branch = Normals(1, rows.rows() * width);
      Floats x = Normals(2, rows.rows() * width), expected_x = x, y(x.size()), expected_y(x.size());
      Floats mean(count), rstd(count), expected_mean(count), expected_rstd(count);
      GatedResidualForward(rows, width, gates.Half(1), branch.data(), expected_x.data());
      LayerNormModulateForward(rows, width, kEps, expected_x.data(), table.Half(0), table.Half(1), expected_y.data(),
                               expected_mean.data(), expected_rstd.data());
      GatedResidualLayerNorm(rows, width, kEps, gates.Half(1), branch.data(), x.data(), table.Half(0), table.Half(1),
                             y.data(), mean.data(), rstd.data());
      EXPECT_EQ(x, expected_x);
      EXPECT_EQ(y, expected_y);
      EXPECT_EQ(mean, expected_mean);
      EXPECT_EQ(rstd, expected_rstd);
    }
  }
}

}  // namespace
}  // namespace spotlight
