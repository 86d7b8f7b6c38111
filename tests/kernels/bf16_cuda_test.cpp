// Activations stored as bfloat16, which only the CUDA back end has, and what the tests of both back ends leave out:
// the model's widths, and more samples than one launch takes. Sums are fp32 whatever the storage, so bfloat16 inputs
// give the bits that the same values give as fp32, rounded once.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "kernels/operations.hpp"
#include "tests/kernels/check.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"

namespace spotlight {
namespace {

using Bf16Cuda = CudaKernels;
using Narrows = std::vector<Bfloat16>;

Narrows Narrow(const Floats& values) {
  Narrows narrow;
  for (const float value : values) narrow.push_back(ToBfloat16(value));
  return narrow;
}

Floats Fp32(const Narrows& values) {
  Floats wide;
  for (const Bfloat16 value : values) wide.push_back(ToFloat(value));
  return wide;
}

constexpr float kEps = 1e-6f;
constexpr std::int64_t kColumns = 3;  // of the modulation table: shift, scale, gate

// Rows of samples, each sample with its own row of the modulation table.
struct Case {
  TokenRowTable samples;
  std::int64_t width;
  std::vector<int> index;
  Floats table, x;
  Narrows branch;  // of the branch, or a gradient

  Case(const std::vector<std::int64_t>& tokens, std::int64_t row_width) : samples(tokens), width(row_width) {
    for (std::size_t b = 0; b < tokens.size(); ++b) index.push_back(static_cast<int>(tokens.size() - 1 - b));
    table = Normals(1, std::ssize(tokens) * kColumns * width);
    x = Normals(2, rows().rows() * width);
    branch = Narrow(Normals(3, std::ssize(x)));
  }
  TokenRows rows() const { return samples.view(); }
  Modulation Column(std::int64_t column) const {
    return {table.data() + column * width, kColumns * width, index.data()};
  }
  ModulationGradient Column(std::int64_t column, Floats& gradient) const {
    return {gradient.data() + column * width, kColumns * width, index.data()};
  }
};

struct Results {
  Floats floats;  // everything that is fp32 in both, one after the other
  Narrows y, dbranch;

  void Add(const Floats& values) { floats.insert(floats.end(), values.begin(), values.end()); }
};

Narrows Rounded(const Floats& values) { return Narrow(values); }
Narrows Rounded(const Narrows& values) { return values; }

// All operations of norm.hpp, with Stored (Floats or Narrows) activations.
template <typename Stored>
Results AllNorms(const Case& of, const Stored& branch) {
  const TokenRows rows = of.rows();
  Results results;
  Stored y(of.x.size()), fused_y(of.x.size()), dbranch(of.x.size()), normed(of.x.size());
  Floats mean(static_cast<std::size_t>(rows.rows())), rstd = mean, fused_mean = mean, fused_rstd = mean, x = of.x;
  Floats dx(of.x.size(), 0.25f), dtable(of.table.size(), 0.5f), dweight(static_cast<std::size_t>(of.width), 0.5f);
  LayerNormModulateForward(rows, of.width, kEps, of.x.data(), of.Column(0), of.Column(1), y.data(), mean.data(),
                           rstd.data());
  GatedResidualLayerNorm(rows, of.width, kEps, of.Column(2), branch.data(), x.data(), of.Column(0), of.Column(1),
                         fused_y.data(), fused_mean.data(), fused_rstd.data());
  LayerNormModulateBackward(rows, of.width, of.x.data(), mean.data(), rstd.data(), of.Column(1), branch.data(),
                            dx.data(), of.Column(0, dtable), of.Column(1, dtable));
  GatedResidualBackward(rows, of.width, of.Column(2), branch.data(), of.x.data(), dbranch.data(), of.Column(2, dtable));
  for (const Floats& values : {mean, rstd, x, fused_mean, fused_rstd, dx, dtable}) results.Add(values);
  RmsNormForward(rows.rows(), of.width, kEps, of.x.data(), of.table.data(), normed.data(), rstd.data());
  RmsNormBackward(rows.rows(), of.width, of.x.data(), of.table.data(), rstd.data(), branch.data(), dx.data(),
                  dweight.data());
  for (const Floats& values : {rstd, dx, dweight}) results.Add(values);
  results.y = Rounded(y);
  for (const Stored& values : {fused_y, normed}) {
    const Narrows narrow = Rounded(values);
    results.y.insert(results.y.end(), narrow.begin(), narrow.end());
  }
  results.dbranch = Rounded(dbranch);
  return results;
}

TEST_F(Bf16Cuda, NormsRoundNothingButTheirResults) {
  for (const std::int64_t width : {3, 24, 100, 1500}) {
    const Case of({35, 0, 4}, width);
    const Results fp32 = AllNorms(of, Fp32(of.branch)), bf16 = AllNorms(of, of.branch);
    EXPECT_EQ(bf16.floats, fp32.floats) << width;
    EXPECT_EQ(bf16.y, fp32.y) << width;
    EXPECT_EQ(bf16.dbranch, fp32.dbranch) << width;
  }
}

TEST_F(Bf16Cuda, NormsOfTheModelsWidths) {
  for (const std::int64_t width : {3072, 3584}) {
    const Case of({2, 17}, width);
    Floats y(of.x.size()), mean(19), rstd(19), dx(of.x.size()), dtable(of.table.size());
    LayerNormModulateForward(of.rows(), width, kEps, of.x.data(), of.Column(0), of.Column(1), y.data(), mean.data(),
                             rstd.data());
    const Floats dy = Fp32(of.branch);
    LayerNormModulateBackward(of.rows(), width, of.x.data(), mean.data(), rstd.data(), of.Column(1), dy.data(),
                              dx.data(), of.Column(0, dtable), of.Column(1, dtable));
    const auto size = static_cast<std::size_t>(width);
    Doubles expected_y(y.size()), expected_dx(y.size()), expected_dtable(dtable.size());
    for (std::size_t row = 0; row < 19; ++row) {
      const std::size_t table = static_cast<std::size_t>(of.index[row < 2 ? 0 : 1]) * kColumns * size;
      double mu = 0, variance = 0, g_mean = 0, gh_mean = 0;
      for (std::size_t j = 0; j < size; ++j) mu += of.x[row * size + j] / static_cast<double>(width);
      for (std::size_t j = 0; j < size; ++j) {
        variance += (of.x[row * size + j] - mu) * (of.x[row * size + j] - mu) / static_cast<double>(width);
      }
      const double r = 1 / std::sqrt(variance + kEps);
      const auto h = [&](std::size_t j) { return (of.x[row * size + j] - mu) * r; };
      const auto g = [&](std::size_t j) { return dy[row * size + j] * (1.0 + of.table[table + size + j]); };
      for (std::size_t j = 0; j < size; ++j) {
        expected_y[row * size + j] = h(j) * (1.0 + of.table[table + size + j]) + of.table[table + j];
        g_mean += g(j) / static_cast<double>(width);
        gh_mean += g(j) * h(j) / static_cast<double>(width);
        expected_dtable[table + j] += dy[row * size + j];
        expected_dtable[table + size + j] += dy[row * size + j] * h(j);
      }
      for (std::size_t j = 0; j < size; ++j) expected_dx[row * size + j] = r * (g(j) - g_mean - h(j) * gh_mean);
    }
    ExpectClose(y, expected_y, 3e-6);
    ExpectClose(dx, expected_dx, 3e-6);
    ExpectClose(dtable, expected_dtable, 1e-5);
  }
}

// 131 samples, the last of them alone: a launch takes 128.
TEST_F(Bf16Cuda, MoreSamplesThanALaunchTakesGiveTheSame) {
  std::vector<std::int64_t> tokens(131, 1);
  tokens[7] = 0;
  tokens[130] = 3;
  const Case all(tokens, 24);
  const Narrows branch = all.branch;
  const auto run = [](const TokenRows& rows, const Modulation& table, const Narrows& in, const Floats& start) {
    Floats x = start, mean(start.size()), rstd(start.size());
    Narrows y(start.size());
    const std::int64_t width = 24;
    GatedResidualForward(rows, width, table, in.data(), x.data());
    GatedResidualLayerNorm(rows, width, kEps, table, in.data(), x.data(), table, table, y.data(), mean.data(),
                           rstd.data());
    return y;
  };
  const Narrows together = run(all.rows(), all.Column(1), branch, all.x);
  const std::int64_t first = all.rows().first[130] * 24;
  const TokenRowTable last({3});
  Modulation column = all.Column(1);
  column.index += 130;
  const Narrows alone =
      run(last.view(), column, {branch.begin() + first, branch.end()}, {all.x.begin() + first, all.x.end()});
  EXPECT_EQ(alone, Narrows(together.begin() + first, together.end()));
}

TEST_F(Bf16Cuda, GeluIsWithinARounding) {
  const Narrows x = Narrow(Normals(1, 4003)), dy = Narrow(Normals(2, 4003));
  const Floats wide_x = Fp32(x), wide_dy = Fp32(dy);
  const std::int64_t size = std::ssize(x);
  Narrows y(x.size()), dx(x.size());
  Floats expected_y(x.size()), expected_dx(x.size());
  GeluForward(size, x.data(), y.data());
  GeluBackward(size, x.data(), dy.data(), dx.data());
  GeluForward(size, wide_x.data(), expected_y.data());
  GeluBackward(size, wide_x.data(), wide_dy.data(), expected_dx.data());
  ExpectClose(Fp32(y), Widen(expected_y), 1.01 / 256);
  ExpectClose(Fp32(dx), Widen(expected_dx), 1.01 / 256);
}

// More heads than a block has warps, lengths of none and of several blocks of tokens, and positions.
TEST_F(Bf16Cuda, QkRopeRoundsNothingButItsResults) {
  const TokenRowTable text({4, 0, 35}), image({2, 40, 1});
  const std::int64_t position[] = {7, 0, 30}, heads = 9;
  for (const std::int64_t size : {24, 34, 128}) {
    for (const bool of_image : {false, true}) {
      const QkRopeShape shape = {text.view(), image.view(), of_image, position, heads, size};
      const std::int64_t rows = (of_image ? image : text).view().rows(), joint = (39 + 43) * heads * size;
      const Narrows qkv = Narrow(Normals(1, rows * 3 * heads * size)), dout = Narrow(Normals(2, 3 * joint));
      const Floats norm_q = Normals(3, size), norm_k = Normals(4, size);
      const Floats cos = Normals(5, 70 * size / 2), sin = Normals(6, 70 * size / 2);
      const auto run = [&](const auto& in, const auto& grad) {
        auto out = grad, dqkv = in;
        Floats dnorm(static_cast<std::size_t>(2 * size), 0.5f);
        QkRopeForward(shape, in.data(), norm_q.data(), norm_k.data(), cos.data(), sin.data(), out.data(),
                      out.data() + joint, out.data() + 2 * joint);
        QkRopeBackward(shape, in.data(), norm_q.data(), norm_k.data(), cos.data(), sin.data(), grad.data(),
                       grad.data() + joint, grad.data() + 2 * joint, dqkv.data(), dnorm.data(), dnorm.data() + size);
        return std::tuple(Rounded(out), Rounded(dqkv), dnorm);
      };
      EXPECT_EQ(run(qkv, dout), run(Fp32(qkv), Fp32(dout))) << size;
    }
  }
}

}  // namespace
}  // namespace spotlight
