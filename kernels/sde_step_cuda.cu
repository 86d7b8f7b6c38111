// Denoising steps on CUDA devices (kernels/sde_step.hpp). Pointwise kernels over [B, n]; the sums of LogProb and StepKl
// are fp32 terms added in double (kernels/cuda/sums.cuh). The coefficients travel with the launch.
#include "kernels/cuda/batch_rows.cuh"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/runtime.hpp"
#include "kernels/cuda/sample_table.cuh"
#include "kernels/cuda/sums.cuh"
#include "kernels/operations_cuda.hpp"

namespace spotlight::cuda {
namespace {

using Coefficients = SampleTable<StepCoefficients>;

// One expression for the mean wherever it is needed, which no compiler may contract in its own way: a log-prob computed
// again has the same bits.
__device__ __forceinline__ float StepMean(float c_x, float c_v, float x, float v) {
  return __fmaf_rn(c_v, v, __fmul_rn(c_x, x));
}

struct StepBody {
  Coefficients coefficients;
  const float *x, *v, *z;
  float* x_next;  // may be x

  template <typename Extent>
  __device__ void operator()(int sample, std::int64_t at, Extent extent) const {
    const StepCoefficients& c = coefficients.at[sample];
    const Quad from = LoadQuad(x + at, extent), velocity = LoadQuad(v + at, extent);
    Quad to;
    if (c.tau == 0) {
      for (int j = 0; j < 4; ++j) to.at[j] = StepMean(c.c_x, c.c_v, from.at[j], velocity.at[j]);
    } else {
      const Quad noise = LoadQuad(z + at, extent);
      for (int j = 0; j < 4; ++j) {
        to.at[j] = __fmaf_rn(c.tau, noise.at[j], StepMean(c.c_x, c.c_v, from.at[j], velocity.at[j]));
      }
    }
    StoreQuad(x_next + at, to, extent);
  }
};

__device__ __forceinline__ double SumOfSquares(const Quad& quad) {
  Quad square;
  for (int j = 0; j < 4; ++j) square.at[j] = __fmul_rn(quad.at[j], quad.at[j]);
  return (static_cast<double>(square.at[0]) + static_cast<double>(square.at[1])) +
         (static_cast<double>(square.at[2]) + static_cast<double>(square.at[3]));
}

// (x_next - mean)^2.
struct ResidualTerm {
  Coefficients coefficients;
  const float *x, *v, *x_next;

  template <typename Extent>
  __device__ double operator()(int sample, std::int64_t at, Extent extent) const {
    const StepCoefficients& c = coefficients.at[sample];
    const Quad from = LoadQuad(x + at, extent), velocity = LoadQuad(v + at, extent);
    Quad rest = LoadQuad(x_next + at, extent);
    for (int j = 0; j < 4; ++j) rest.at[j] -= StepMean(c.c_x, c.c_v, from.at[j], velocity.at[j]);
    return SumOfSquares(rest);
  }
};

// (c_v (v - v_reference))^2.
struct DivergenceTerm {
  Coefficients coefficients;
  const float *v, *v_reference;

  template <typename Extent>
  __device__ double operator()(int sample, std::int64_t at, Extent extent) const {
    const float c_v = coefficients.at[sample].c_v;
    const Quad reference = LoadQuad(v_reference + at, extent);
    Quad rest = LoadQuad(v + at, extent);
    for (int j = 0; j < 4; ++j) rest.at[j] = __fmul_rn(c_v, rest.at[j] - reference.at[j]);
    return SumOfSquares(rest);
  }
};

// offset + factor * sum.
struct LinearResult {
  struct Line {
    double factor, offset;
  };
  SampleTable<Line> lines;
  float* to;

  __device__ void operator()(int sample, double sum) const {
    to[sample] = static_cast<float>(__fma_rn(lines.at[sample].factor, sum, lines.at[sample].offset));
  }
};

// What multiplies dlog_prob (x_next - mean), and dkl (v - v_reference) after another factor c_v.
double GradientFactor(const StepCoefficients& c, std::int64_t size) {
  return 2.0 * c.log_prob_scale * c.c_v / static_cast<double>(size);
}

struct GradientBody {
  struct Row {
    double factor;
    float c_x, c_v;
  };
  SampleTable<Row> rows;
  const float *x, *v, *x_next, *v_reference, *dlog_prob, *dkl;
  float* dv;

  template <typename Extent>
  __device__ void operator()(int sample, std::int64_t at, Extent extent) const {
    const Row& row = rows.at[sample];
    const Quad from = LoadQuad(x + at, extent), velocity = LoadQuad(v + at, extent);
    Quad gradient = LoadQuad(x_next + at, extent);
    const auto factor = static_cast<float>(dlog_prob[sample] * row.factor);
    for (int j = 0; j < 4; ++j) {
      gradient.at[j] = factor * (gradient.at[j] - StepMean(row.c_x, row.c_v, from.at[j], velocity.at[j]));
    }
    if (v_reference != nullptr) {
      const Quad reference = LoadQuad(v_reference + at, extent);
      const auto kl_factor = static_cast<float>(dkl[sample] * row.factor * row.c_v);
      for (int j = 0; j < 4; ++j) {
        gradient.at[j] = __fmaf_rn(kl_factor, velocity.at[j] - reference.at[j], gradient.at[j]);
      }
    }
    StoreQuad(dv + at, gradient, extent);
  }
};

Coefficients TableFrom(const StepCoefficients* coefficients, std::int64_t first, std::int64_t count) {
  return TableOf<StepCoefficients>(first, count, [=](std::int64_t b) { return coefficients[b]; });
}

// `offset` elements further, if there is an array.
const float* Further(const float* from, std::int64_t offset) { return from == nullptr ? nullptr : from + offset; }

}  // namespace

void SdeStep(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* z, float* x_next) {
  const bool aligned = QuadsAligned(batch, size, x, v, z, x_next);
  ForEachChunk(batch, [=](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * size;
    Pointwise(count, size, aligned,
              StepBody{TableFrom(coefficients, first, count), x + at, v + at, Further(z, at), x_next + at});
  });
}

void LogProb(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
             const float* v, const float* x_next, float* log_prob) {
  const bool aligned = QuadsAligned(batch, size, x, v, x_next);
  ForEachChunk(batch, [=](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * size;
    const auto lines = TableOf<LinearResult::Line>(first, count, [=](std::int64_t b) {
      return LinearResult::Line{-coefficients[b].log_prob_scale / static_cast<double>(size),
                                coefficients[b].log_prob_constant};
    });
    SumRows(count, size, aligned, ResidualTerm{TableFrom(coefficients, first, count), x + at, v + at, x_next + at},
            LinearResult{lines, log_prob + first}, Scratch<double>(PartialSums(count, size)));
  });
}

void LogProbBackward(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* x,
                     const float* v, const float* x_next, const float* v_reference, const float* dlog_prob,
                     const float* dkl, float* dv) {
  const bool aligned = QuadsAligned(batch, size, x, v, x_next, v_reference, dv);
  ForEachChunk(batch, [=](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * size;
    const auto rows = TableOf<GradientBody::Row>(first, count, [=](std::int64_t b) {
      const StepCoefficients& c = coefficients[b];
      return GradientBody::Row{GradientFactor(c, size), c.c_x, c.c_v};
    });
    Pointwise(count, size, aligned,
              GradientBody{rows, x + at, v + at, x_next + at, Further(v_reference, at), dlog_prob + first,
                           Further(dkl, first), dv + at});
  });
}

void StepKl(std::int64_t batch, std::int64_t size, const StepCoefficients* coefficients, const float* v,
            const float* v_reference, float* kl) {
  const bool aligned = QuadsAligned(batch, size, v, v_reference);
  ForEachChunk(batch, [=](std::int64_t first, std::int64_t count) {
    const std::int64_t at = first * size;
    const auto lines = TableOf<LinearResult::Line>(first, count, [=](std::int64_t b) {
      return LinearResult::Line{coefficients[b].log_prob_scale / static_cast<double>(size), 0};
    });
    SumRows(count, size, aligned, DivergenceTerm{TableFrom(coefficients, first, count), v + at, v_reference + at},
            LinearResult{lines, kl + first}, Scratch<double>(PartialSums(count, size)));
  });
}

}  // namespace spotlight::cuda
