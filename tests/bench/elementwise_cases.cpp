#include <fmt/format.h>

#include <utility>

#include "kernels/operations.hpp"
#include "tests/bench/operation_cases.hpp"

namespace spotlight {
namespace {

using Call = std::function<void()>;
constexpr float kEps = 1e-6f;

// Of one batch of images; every function adds the cases of one header of kernels/.
class BatchCases {
 public:
  BatchCases(const BenchSizes& sizes, const BenchSizes::Images& images, ElementType type,
             std::vector<OperationCase>& cases)
      : sizes_(sizes), images_(images), type_(type), cases_(cases), rows_(MakeBenchRows(images)) {}

  void Norms() {
    const std::int64_t d = sizes_.width(), r = image_rows();
    Add("layer_norm_modulate_forward", Tokens(d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const float* x = a.Read(r * d);
      const Modulation shift = Column(a, *rows), scale = Column(a, *rows);
      const Activations y = a.Write(r * d, type_);
      float *mean = a.Write(r), *rstd = a.Write(r);
      return [=] { LayerNormModulateForward(rows->image.view(), d, kEps, x, shift, scale, y, mean, rstd); };
    });
    Add("layer_norm_modulate_backward", Tokens(d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const float *x = a.Read(r * d), *mean = a.Read(r), *rstd = a.Read(r);
      const Modulation scale = Column(a, *rows);
      const ConstActivations dy = a.Read(r * d, type_);
      float* dx = a.Change(r * d);
      return [=] { LayerNormModulateBackward(rows->image.view(), d, x, mean, rstd, scale, dy, dx, {}, {}); };
    });
    Add("layer_norm_modulate_backward, sums", Tokens(d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const float *x = a.Read(r * d), *mean = a.Read(r), *rstd = a.Read(r);
      const Modulation scale = Column(a, *rows);
      const ConstActivations dy = a.Read(r * d, type_);
      float* dx = a.Change(r * d);
      const ModulationGradient dshift{a.Change(d), d, rows->level.data()}, dscale{a.Change(d), d, rows->level.data()};
      return [=] { LayerNormModulateBackward(rows->image.view(), d, x, mean, rstd, scale, dy, dx, dshift, dscale); };
    });
    Add("gated_residual_forward", Tokens(d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const Modulation gate = Column(a, *rows);
      const ConstActivations branch = a.Read(r * d, type_);
      float* x = a.Change(r * d);
      return [=] { GatedResidualForward(rows->image.view(), d, gate, branch, x); };
    });
    Add("gated_residual_layer_norm", Tokens(d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const Modulation gate = Column(a, *rows), shift = Column(a, *rows), scale = Column(a, *rows);
      const ConstActivations branch = a.Read(r * d, type_);
      float* x = a.Change(r * d);
      const Activations y = a.Write(r * d, type_);
      float *mean = a.Write(r), *rstd = a.Write(r);
      return [=] { GatedResidualLayerNorm(rows->image.view(), d, kEps, gate, branch, x, shift, scale, y, mean, rstd); };
    });
    Add("gated_residual_backward", Tokens(d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const Modulation gate = Column(a, *rows);
      const ConstActivations branch = a.Read(r * d, type_);
      const float* dx = a.Read(r * d);
      const Activations dbranch = a.Write(r * d, type_);
      const ModulationGradient dgate{a.Change(d), d, rows->level.data()};
      return [=] { GatedResidualBackward(rows->image.view(), d, gate, branch, dx, dbranch, dgate); };
    });
    const std::int64_t text = images_.batch * images_.text, width = sizes_.text_width;
    const std::string of_text = fmt::format("{} x {} text tokens, {}", images_.batch, images_.text, width);
    Add("rms_norm_forward", of_text, [=, *this](Arrays& a) -> Call {
      const float *x = a.Read(text * width), *weight = a.Read(width);
      const Activations y = a.Write(text * width, type_);
      float* rstd = a.Write(text);
      return [=] { RmsNormForward(text, width, kEps, x, weight, y, rstd); };
    });
    Add("rms_norm_backward", of_text, [=, *this](Arrays& a) -> Call {
      const float *x = a.Read(text * width), *weight = a.Read(width), *rstd = a.Read(text);
      const ConstActivations dy = a.Read(text * width, type_);
      float *dx = a.Write(text * width), *dweight = a.Change(width);
      return [=] { RmsNormBackward(text, width, x, weight, rstd, dy, dx, dweight); };
    });
  }

  void Pointwise() {
    const std::int64_t size = image_rows() * 4 * sizes_.width();
    Add("gelu_forward", Tokens(4 * sizes_.width()), [=, *this](Arrays& a) -> Call {
      const ConstActivations x = a.Read(size, type_);
      const Activations y = a.Write(size, type_);
      return [=] { GeluForward(size, x, y); };
    });
    Add("gelu_backward", Tokens(4 * sizes_.width()), [=, *this](Arrays& a) -> Call {
      const ConstActivations x = a.Read(size, type_), dy = a.Read(size, type_);
      const Activations dx = a.Write(size, type_);
      return [=] { GeluBackward(size, x, dy, dx); };
    });
  }

  void Rope() {
    const std::int64_t d = sizes_.width(), r = image_rows(), joint = r + images_.batch * images_.text;
    const std::int64_t table = images_.side * images_.side * sizes_.head_size / 2, head = sizes_.head_size;
    const QkRopeShape shape{rows_->text.view(), rows_->image.view(), true, nullptr, sizes_.heads, head};
    Add("qk_rope_forward", Tokens(3 * d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const ConstActivations qkv = a.Read(3 * r * d, type_);
      const float *norm_q = a.Read(head), *norm_k = a.Read(head), *cos = a.Read(table), *sin = a.Read(table);
      const Activations q = a.Write(r * d, type_, joint * d), k = a.Write(r * d, type_, joint * d),
                        v = a.Write(r * d, type_, joint * d);
      return [=, keep = rows] { QkRopeForward(shape, qkv, norm_q, norm_k, cos, sin, q, k, v); };
    });
    Add("qk_rope_backward", Tokens(3 * d), [=, *this, rows = rows_](Arrays& a) -> Call {
      const ConstActivations qkv = a.Read(3 * r * d, type_);
      const float *norm_q = a.Read(head), *norm_k = a.Read(head), *cos = a.Read(table), *sin = a.Read(table);
      const ConstActivations dq = a.Read(r * d, type_, joint * d), dk = a.Read(r * d, type_, joint * d),
                             dv = a.Read(r * d, type_, joint * d);
      const Activations dqkv = a.Write(3 * r * d, type_);
      return [=, keep = rows] {
        QkRopeBackward(shape, qkv, norm_q, norm_k, cos, sin, dq, dk, dv, dqkv, nullptr, nullptr);
      };
    });
  }

  // Packing for groups of four ranks: of each row every rank gets its heads of q, k and v.
  void Blocks() {
    const std::int64_t d = sizes_.width(), r = image_rows(), ranks = 4, share = 3 * d / ranks;
    Add("copy_blocks", Tokens(3 * d), [=, *this](Arrays& a) -> Call {
      std::vector<BlockCopy> blocks;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        blocks.push_back({rank * share, rank * share * r, r, share, 3 * d, share});
      }
      const ConstActivations from = a.Read(3 * r * d, type_);
      const Activations to = a.Write(3 * r * d, type_);
      return [=] { CopyBlocks(blocks, from, to); };
    });
  }

  // fp32 everywhere: latents, steps, guidance, cached steps.
  void Steps() {
    const std::int64_t b = images_.batch, tokens = images_.side * images_.side, size = tokens * 64;
    const std::string of_latents = fmt::format("{}, 64", Tokens());
    const std::vector<StepCoefficients> c(static_cast<std::size_t>(b), {.c_x = 0.9f, .c_v = -0.1f, .tau = 0.3f});
    AddFp32("guidance_forward", of_latents, [=](Arrays& a) -> Call {
      const float* pairs = a.Read(2 * b * size);
      float* v = a.Write(b * size);
      return [=] { GuidanceForward(b, size, 64, 4.0f, pairs, v); };
    });
    AddFp32("guidance_backward", of_latents, [=](Arrays& a) -> Call {
      const float *pairs = a.Read(2 * b * size), *dv = a.Read(b * size);
      float* dpairs = a.Write(2 * b * size);
      return [=] { GuidanceBackward(b, size, 64, 4.0f, pairs, dv, dpairs); };
    });
    AddFp32("normal_noise", of_latents, [=](Arrays& a) -> Call {
      const std::vector<std::uint64_t> keys(static_cast<std::size_t>(b), 7);
      float* noise = a.Write(b * size);
      return [=] { NormalNoise(b, size, keys.data(), noise); };
    });
    AddFp32("pack_latents", of_latents, [=, side = images_.side](Arrays& a) -> Call {
      const float* latents = a.Read(b * size);
      float* packed = a.Write(b * size);
      return [=] { PackLatents(b, 16, side, side, latents, packed); };
    });
    AddFp32("unpack_latents", of_latents, [=, side = images_.side](Arrays& a) -> Call {
      const float* packed = a.Read(b * size);
      float* latents = a.Write(b * size);
      return [=] { UnpackLatents(b, 16, side, side, packed, latents); };
    });
    AddFp32("sde_step", of_latents, [=](Arrays& a) -> Call {
      const float *x = a.Read(b * size), *v = a.Read(b * size), *z = a.Read(b * size);
      float* next = a.Write(b * size);
      return [=] { SdeStep(b, size, c.data(), x, v, z, next); };
    });
    AddFp32("log_prob", of_latents, [=](Arrays& a) -> Call {
      const float *x = a.Read(b * size), *v = a.Read(b * size), *next = a.Read(b * size);
      float* log_prob = a.Write(b);
      return [=] { LogProb(b, size, c.data(), x, v, next, log_prob); };
    });
    AddFp32("log_prob_backward", of_latents, [=](Arrays& a) -> Call {
      const float *x = a.Read(b * size), *v = a.Read(b * size), *next = a.Read(b * size);
      const float *reference = a.Read(b * size), *dlog_prob = a.Read(b), *dkl = a.Read(b);
      float* dv = a.Write(b * size);
      return [=] { LogProbBackward(b, size, c.data(), x, v, next, reference, dlog_prob, dkl, dv); };
    });
    AddFp32("step_kl", of_latents, [=](Arrays& a) -> Call {
      const float *v = a.Read(b * size), *reference = a.Read(b * size);
      float* kl = a.Write(b);
      return [=] { StepKl(b, size, c.data(), v, reference, kl); };
    });
    const std::int64_t d = sizes_.width(), r = image_rows();
    AddFp32("row_changes", Tokens(d), [=](Arrays& a) -> Call {
      const float *x = a.Read(r * d), *last = a.Read(r * d);
      float* sums = a.Write(2 * r);
      return [=] { RowChanges(r, d, x, last, sums); };
    });
    AddFp32("subtract", Tokens(d), [=](Arrays& a) -> Call {
      const float *x = a.Read(r * d), *y = a.Read(r * d);
      float* difference = a.Write(r * d);
      return [=] { Subtract(r * d, x, y, difference); };
    });
    // All rows were computed.
    AddFp32("merge_rows", Tokens(d), [=](Arrays& a) -> Call {
      std::vector<std::int64_t> place;
      for (std::int64_t row = 0; row < r; ++row) place.push_back(row);
      const float *before = a.Read(r * d), *computed = a.Read(r * d);
      float *residual = a.Write(r * d), *after = a.Write(r * d);
      return [=] { MergeRows(r, d, place.data(), before, computed, residual, after); };
    });
  }

 private:
  std::int64_t image_rows() const { return images_.batch * images_.side * images_.side; }
  std::string Tokens() const { return Describe(images_) + " image tokens"; }
  std::string Tokens(std::int64_t width) const { return fmt::format("{}, {}", Tokens(), width); }
  Modulation Column(Arrays& arrays, const BenchRows& rows) const {
    return {arrays.Read(sizes_.width()), sizes_.width(), rows.level.data()};
  }
  void Add(std::string name, std::string shape, std::function<Call(Arrays&)> make) {
    cases_.push_back({std::move(name), std::move(shape), type_, 0, std::move(make)});
  }
  void AddFp32(std::string name, std::string shape, std::function<Call(Arrays&)> make) {
    cases_.push_back({std::move(name), std::move(shape), ElementType::kFp32, 0, std::move(make)});
  }

  BenchSizes sizes_;
  BenchSizes::Images images_;
  ElementType type_;
  std::vector<OperationCase>& cases_;
  std::shared_ptr<const BenchRows> rows_;
};

// Of all trained weights at once.
void AddOptimizer(const BenchSizes& sizes, std::vector<OperationCase>& cases) {
  const std::int64_t n = sizes.adapter;
  const auto add = [&](std::string name, std::function<Call(Arrays&)> make) {
    cases.push_back({std::move(name), fmt::format("{} parameters", n), ElementType::kFp32, 0, std::move(make)});
  };
  add("adam_w_update", [=](Arrays& a) -> Call {
    const float* grad = a.Read(n);
    float *weight = a.Change(n), *m = a.Change(n), *v = a.Change(n);
    ZeroFloats(v, n);  // second moments are not negative
    return [=] { AdamWUpdate({}, 10, n, 1.0f, grad, weight, m, v); };
  });
  add("squared_norm", [=](Arrays& a) -> Call {
    const float* x = a.Read(n);
    return [=] { SquaredNorm(n, x); };
  });
  add("all_finite", [=](Arrays& a) -> Call {
    const float* x = a.Read(n);
    return [=] { AllFinite(n, x); };
  });
  add("ema_update", [=](Arrays& a) -> Call {
    const float* weight = a.Read(n);
    float* ema = a.Change(n);
    return [=] { EmaUpdate(n, 0.9, weight, ema); };
  });
  add("axpy", [=](Arrays& a) -> Call {
    const float* x = a.Read(n);
    float* y = a.Change(n);
    return [=] { Axpy(n, 1e-3f, x, y); };
  });
  add("scale", [=](Arrays& a) -> Call {
    float* y = a.Change(n);
    return [=] { Scale(n, 0.999f, y); };
  });
  add("copy_floats", [=](Arrays& a) -> Call {
    const float* from = a.Read(n);
    float* to = a.Write(n);
    return [=] { CopyFloats(from, to, n); };
  });
  add("zero_floats", [=](Arrays& a) -> Call {
    float* to = a.Write(n);
    return [=] { ZeroFloats(to, n); };
  });
  add("silu_forward", [=](Arrays& a) -> Call {
    const float* x = a.Read(n);
    float* y = a.Write(n);
    return [=] { SiluForward(n, x, y); };
  });
  add("silu_backward", [=](Arrays& a) -> Call {
    const float *x = a.Read(n), *dy = a.Read(n);
    float* dx = a.Change(n);
    return [=] { SiluBackward(n, x, dy, dx); };
  });
}

}  // namespace

std::vector<OperationCase> ElementwiseCases(const BenchSizes& sizes, ElementType type) {
  std::vector<OperationCase> cases;
  for (const BenchSizes::Images& images : sizes.elementwise) {
    BatchCases batch(sizes, images, type, cases);
    batch.Norms();
    batch.Pointwise();
    batch.Rope();
    batch.Blocks();
    if (type == ElementType::kFp32) batch.Steps();
  }
  if (type != ElementType::kFp32) {
    cases.push_back({"round_to_bfloat16", fmt::format("{} parameters", sizes.adapter), type, 0,
                     [n = sizes.adapter](Arrays& a) -> Call {
                       const float* from = a.Read(n);
                       auto* to = a.Write(n, ElementType::kBf16).As<Bfloat16>();
                       return [=] { RoundToBfloat16(n, from, to); };
                     }});
    return cases;
  }
  AddOptimizer(sizes, cases);
  const std::int64_t pixels = sizes.pixels_side * sizes.pixels_side, channels = sizes.pixel_channels;
  cases.push_back({"norm_pixels", fmt::format("{} x {} pixels, {}", sizes.pixels_side, sizes.pixels_side, channels),
                   type, 0, [=](Arrays& a) -> Call {
                     const float *x = a.Read(pixels * channels), *gamma = a.Read(channels);
                     float* y = a.Write(pixels * channels);
                     return [=] { NormPixels(pixels, channels, x, gamma, true, y); };
                   }});
  const std::int64_t rank = sizes.rank, width = 4 * sizes.width();
  cases.push_back({"add_transposed", fmt::format("{} x {}", rank, width), type, 0, [=](Arrays& a) -> Call {
                     const float* from = a.Read(rank * width);
                     float* to = a.Change(rank * width);
                     return [=] { AddTransposed(rank, width, from, to, rank); };
                   }});
  return cases;
}

}  // namespace spotlight
