#include <fmt/format.h>

#include <utility>

#include "kernels/attention.hpp"
#include "kernels/convolution.hpp"
#include "kernels/linear.hpp"
#include "tests/bench/operation_cases.hpp"

namespace spotlight {
namespace {

using Call = std::function<void()>;

// The arrays of a forward, in attention layout.
struct AttentionArrays {
  std::shared_ptr<const BenchRows> rows;
  AttentionShape shape;
  ConstActivations q, k, v;
  const std::uint8_t* mask = nullptr;
  Activations out_text, out_image;
  float* lse = nullptr;

  AttentionArrays(const BenchSizes& sizes, const BenchSizes::Images& images, ElementType type, bool masked, Arrays& a)
      : rows(MakeBenchRows(images)) {
    shape = {rows->text.view(), rows->image.view(), sizes.heads, sizes.head_size};
    const std::int64_t text = shape.text.rows(), image = shape.image.rows(), d = sizes.width();
    q = a.Read((text + image) * d, type);
    k = a.Read((text + image) * d, type);
    v = a.Read((text + image) * d, type);
    if (masked) mask = a.Ones(text);
    out_text = a.Write(text * d, type);
    out_image = a.Write(image * d, type);
    lse = a.Write((text + image) * sizes.heads);
  }
  void Forward() const { AttentionForward(shape, q, k, v, mask, out_text, out_image, lse); }
};

void AddAttention(const BenchSizes& sizes, const BenchSizes::Images& images, ElementType type, bool masked,
                  std::vector<OperationCase>& cases) {
  const std::int64_t tokens = images.side * images.side + images.text, d = sizes.width();
  const std::int64_t product = 2 * images.batch * tokens * tokens * d;  // q k^T, or p v
  const std::string shape = fmt::format("{} x ({} + {}) tokens", images.batch, images.side * images.side, images.text);
  const std::string whose = masked ? ", masked" : "";
  cases.push_back({"attention_forward" + whose, shape, type, 2 * product, [=](Arrays& a) -> Call {
                     const AttentionArrays arrays(sizes, images, type, masked, a);
                     return [=] { arrays.Forward(); };
                   }});
  cases.push_back({"attention_backward" + whose, shape, type, 5 * product, [=](Arrays& a) -> Call {
                     const AttentionArrays f(sizes, images, type, masked, a);
                     f.Forward();
                     const std::int64_t text = f.shape.text.rows(), image = f.shape.image.rows();
                     const ConstActivations dout_text = a.Read(text * d, type), dout_image = a.Read(image * d, type);
                     const Activations dq = a.Write((text + image) * d, type), dk = a.Write((text + image) * d, type),
                                       dv = a.Write((text + image) * d, type);
                     return [=] {
                       AttentionBackward(f.shape, f.q, f.k, f.v, f.mask, f.out_text, f.out_image, f.lse, dout_text,
                                         dout_image, dq, dk, dv);
                     };
                   }});
}

WeightMatrix Weights(Arrays& a, std::int64_t size, ElementType type) {
  const ConstActivations memory = a.Read(size, type);
  if (type == ElementType::kBf16) return {.bf16 = memory.As<Bfloat16>()};
  return {.fp32 = memory.As<float>()};
}

void AddLinear(std::int64_t rows, std::int64_t in, std::int64_t out, ElementType type,
               std::vector<OperationCase>& cases) {
  const std::string shape = fmt::format("{} rows, {} -> {}", rows, in, out);
  const std::int64_t flops = 2 * rows * in * out;
  cases.push_back({"linear_forward", shape, type, flops, [=](Arrays& a) -> Call {
                     const ConstActivations x = a.Read(rows * in, type);
                     const WeightMatrix weight = Weights(a, out * in, type);
                     const float* bias = a.Read(out);
                     const Activations y = a.Write(rows * out, type);
                     return [=] { LinearForward(rows, in, out, x, in, weight, bias, y, out); };
                   }});
  cases.push_back({"linear_backward_input", shape, type, flops, [=](Arrays& a) -> Call {
                     const ConstActivations dy = a.Read(rows * out, type);
                     const WeightMatrix weight = Weights(a, out * in, type);
                     const Activations dx = a.Write(rows * in, type);
                     return [=] { LinearBackwardInput(rows, in, out, dy, out, weight, dx, in, false); };
                   }});
  cases.push_back({"linear_backward_weight", shape, type, flops, [=](Arrays& a) -> Call {
                     const ConstActivations x = a.Read(rows * in, type), dy = a.Read(rows * out, type);
                     float *dweight = a.Change(out * in), *dbias = a.Change(out);
                     return [=] { LinearBackwardWeight(rows, in, out, x, in, dy, out, dweight, dbias); };
                   }});
}

void AddConvolution(const BenchSizes::Convolution& size, std::vector<OperationCase>& cases) {
  const std::int64_t pixels = size.side * size.side, weights = size.out * size.in * 9;
  cases.push_back({"convolve", fmt::format("{0} x {0} pixels, 3 x 3, {1} -> {2}", size.side, size.in, size.out),
                   ElementType::kFp32, 2 * pixels * weights, [=](Arrays& a) -> Call {
                     const ConvolutionShape shape{
                         .in = size.in, .out = size.out, .taps = 3, .pad_row = 1, .pad_column = 1};
                     const std::vector<float> weight(static_cast<std::size_t>(weights), 0.01f);
                     const std::vector<float> bias(static_cast<std::size_t>(size.out), 0.5f);
                     const auto convolution = std::make_shared<const Convolution>(shape, weight, bias);
                     a.ReadElsewhere(weights + size.out);
                     const ConvolutionBand whole{.rows = size.side,
                                                 .columns = size.side,
                                                 .first = 0,
                                                 .count = size.side,
                                                 .y_row = size.side * size.out,
                                                 .y_column = size.out};
                     const float* x = a.Read(pixels * size.in);
                     float* y = a.Write(pixels * size.out);
                     return [=] { convolution->Apply(whole, x, y); };
                   }});
}

}  // namespace

std::vector<OperationCase> ProductCases(const BenchSizes& sizes, ElementType type) {
  std::vector<OperationCase> cases;
  for (const BenchSizes::Images& images : sizes.attention) AddAttention(sizes, images, type, false, cases);
  for (const BenchSizes::Images& images : sizes.attention) {
    if (images.batch == 1) AddAttention(sizes, images, type, true, cases);
  }
  const std::int64_t d = sizes.width();
  for (const BenchSizes::Images& images : sizes.linear) {
    const std::int64_t rows = images.batch * images.side * images.side;
    for (const auto& [in, out] : {std::pair{d, d}, {d, 3 * d}, {d, 4 * d}, {4 * d, d}, {d, sizes.rank}}) {
      AddLinear(rows, in, out, type, cases);
    }
  }
  if (type == ElementType::kFp32) {
    for (const BenchSizes::Convolution& size : sizes.convolutions) AddConvolution(size, cases);
  }
  return cases;
}

}  // namespace spotlight
