// Passes of Qwen-Image's transformer at its real width, beside scripts/bench/diffusers_passes.py.
//
//   bench_passes [--back_end=cuda|kokkos] [--small] [--layers=L[,L...]] [--repeats=N] [--seconds=S]
//
// 1024 and 6400 image tokens (512 and 1280 px) and 128 text tokens, batch 1, random weights stored in bfloat16;
// activations in bfloat16 on a GPU, else fp32. Numbers of layers: 60 by default; where they do not
// fit into memory, as many as fit of 48, 32, 20, 10 and 4. --seconds: no other pass is begun after S seconds.
//
//   forward   one forward
//   frozen    forward and backward to the inputs, weights frozen, everything kept
//   lora      forward and backward of an adapter of rank 64 on all linear layers of the blocks, with recomputation, as
//             inputs/qwen_image_*.ini train it
//
// Prints one JSON line: {"benchmark": "passes", "back_end", "device", "small": b, "product_tflop_per_s": t, "passes":
// [{"mode", "pixels", "layers", "layers_wanted", "activations": "bf16"|"fp32", "flops", "median_s", "min_s",
// "tflop_per_s", "share", "seconds_of_60_layers", "memory_gb"}, ...], "plan_seconds": [s, ...], "left_out": n}. flops:
// products and attention of the blocks by definition, without what is recomputed: a backward to the inputs has the
// products of a forward once more, and 2.5 times its attention. share: of the library's best bf16 product, measured in
// the same run. seconds_of_60_layers: median_s * 60 / layers. plan_seconds: what the first attention, forward and
// backward, of a text of another length takes more than the second, for five lengths: cuDNN plans each of them.
// memory_gb: of the device, used by all processes after the pass. Exit code 1: a pass failed ("error" in place of
// numbers); 2: the back end cannot be had.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/back_end.hpp"
#include "kernels/operations.hpp"
#include "kernels/runtime.hpp"
#include "model/dit.hpp"
#include "model/weight_storage.hpp"
#include "tests/bench/device_meter.hpp"
#include "tests/bench/operation_cases.hpp"
#include "tests/bench/peaks.hpp"
#include "tests/bench/timing.hpp"

namespace spotlight {
namespace {

constexpr int kWholeModel = 60;
constexpr int kFewerLayers[] = {48, 32, 20, 10, 4};

struct Arguments {
  bool cuda = false, small = false;
  std::vector<int> layers{kWholeModel};
  int repeats = 5;
  double seconds = 120;
};

struct Sizes {
  TransformerConfig config;
  Index text = 128;
  int rank = 64;
  std::vector<int> sides{32, 80};  // of 16 pixels each
};

Sizes SizesOf(bool small) {
  if (!small) return {};
  Sizes sizes{.text = 5, .rank = 4, .sides = {4, 6}};
  sizes.config.num_attention_heads = 2;
  sizes.config.attention_head_dim = 24;
  sizes.config.axes_dims_rope = {8, 8, 8};
  sizes.config.joint_attention_dim = 56;
  return sizes;
}

LoraSettings Adapter(int rank) {
  return {rank,
          2.0 * rank,
          {"to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out",
           "img_mlp.net.0.proj", "img_mlp.net.2", "txt_mlp.net.0.proj", "txt_mlp.net.2"}};
}

// Random weights, made where they are used.
std::unique_ptr<WeightStorage> RandomWeights(const DitLayout& layout) {
  auto storage = std::make_unique<WeightStorage>(layout, Precision::kBf16);
  const int parts = layout.used_parts(false);
  storage->Allocate(0, parts);
  constexpr float kScale = 0.02f;
  Buffer wide;
  for (int part = 0; part < parts; ++part) {
    const WeightStorage::Target target = storage->Writable(part);
    FillWithNoise(target.vectors.data(), std::ssize(target.vectors));
    Scale(std::ssize(target.vectors), kScale, target.vectors.data());
    const Index size = std::ssize(target.matrices_bf16);
    wide.Resize(size);
    FillWithNoise(wide.data(), size);
    Scale(size, kScale, wide.data());
    RoundToBfloat16(size, wide.data(), target.matrices_bf16.data());
  }
  return storage;
}

enum class Mode { kForward, kFrozen, kLora };
const char* NameOf(Mode mode) { return mode == Mode::kForward ? "forward" : mode == Mode::kFrozen ? "frozen" : "lora"; }

double Flops(const TransformerConfig& config, Index tokens, Mode mode) {
  const double n = static_cast<double>(tokens), d = config.width();
  const double products = 2 * 12 * n * d * d, attention = 4 * n * n * d;
  const double passes = mode == Mode::kForward ? 1 : 2, attentions = mode == Mode::kForward ? 1 : 3.5;
  return config.num_layers * (passes * products + attentions * attention);
}

// A model with its weights, and the times of its passes.
class Passes {
 public:
  Passes(const Sizes& sizes, int layers, ElementType type) : sizes_(sizes), type_(type) {
    sizes_.config.num_layers = layers;
    layout_ = std::make_shared<const DitLayout>(sizes_.config, Adapter(sizes_.rank));
    weights_ = RandomWeights(*layout_);
  }

  std::vector<double> Seconds(Mode mode, int side, int repeats, DeviceMeter& meter) const {
    const TransformerConfig& config = sizes_.config;
    const Index image_size = Index{side} * side * config.in_channels, adapter_size = layout_->adapter().size();
    Arrays arrays;
    const DitInput input{.text_tokens = {sizes_.text},
                         .images = {{1, side, side}},
                         .image = arrays.Read(image_size),
                         .text = arrays.Read(sizes_.text * config.joint_attention_dim),
                         .levels = {0.5f},
                         .level_index = {0}};
    const float* dvelocity = arrays.Read(image_size);
    float *velocity = arrays.Write(image_size), *dimage = arrays.Write(image_size);
    float* dtext = arrays.Write(sizes_.text * config.joint_attention_dim);
    const bool lora = mode == Mode::kLora;
    ResidentParameters parameters(*layout_, *weights_, lora ? arrays.Read(adapter_size) : nullptr,
                                  lora ? arrays.Write(adapter_size) : nullptr);
    parameters.lora_scale = 2;
    Dit dit(layout_, type_);
    const auto pass = [&] {
      dit.Forward(parameters, input, {.keep = mode != Mode::kForward, .recompute = lora}, velocity);
      if (mode == Mode::kFrozen) dit.Backward(parameters, input, dvelocity, {.image = dimage, .text = dtext});
      if (mode == Mode::kLora) dit.Backward(parameters, input, dvelocity, {});
    };
    pass();
    std::vector<double> times;
    for (int i = 0; i < repeats; ++i) {
      meter.Start();
      pass();
      times.push_back(meter.Stop());
    }
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  Sizes sizes_;
  ElementType type_;
  std::shared_ptr<const DitLayout> layout_;
  std::unique_ptr<WeightStorage> weights_;
};

// Of the smallest image.
std::vector<double> PlanSeconds(const Sizes& sizes, ElementType type) {
  constexpr int kLengths = 5;
  const Index heads = sizes.config.num_attention_heads, head_size = sizes.config.attention_head_dim;
  const Index image = Index{sizes.sides[0]} * sizes.sides[0];
  std::vector<double> planning;
  for (int length = 1; length <= kLengths; ++length) {
    Arrays arrays;
    const TokenRowTable text_rows({sizes.text + length}), image_rows({image});
    const Index text = sizes.text + length, joint = (text + image) * heads * head_size;
    const Index text_size = text * heads * head_size, image_size = image * heads * head_size;
    const AttentionShape shape{
        .text = text_rows.view(), .image = image_rows.view(), .heads = heads, .head_size = head_size};
    const ConstActivations q = arrays.Read(joint, type), k = arrays.Read(joint, type), v = arrays.Read(joint, type);
    const Activations out_text = arrays.Write(text_size, type), out_image = arrays.Write(image_size, type);
    const Activations dq = arrays.Write(joint, type), dk = arrays.Write(joint, type), dv = arrays.Write(joint, type);
    float* lse = arrays.Write((text + image) * heads);
    const auto seconds = [&] {
      AllFinite(1, lse);  // waits for what was launched before
      const auto began = std::chrono::steady_clock::now();
      AttentionForward(shape, q, k, v, nullptr, out_text, out_image, lse);
      AttentionBackward(shape, q, k, v, nullptr, out_text, out_image, lse, out_text, out_image, dq, dk, dv);
      AllFinite(1, lse);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    const double first = seconds();
    planning.push_back(first - seconds());
  }
  return planning;
}

// What is printed of one pass.
struct Row {
  Mode mode;
  int side, layers, layers_wanted;
  ElementType type;

  std::string Text(const Sizes& sizes, const std::vector<double>& times, double peak, double memory) const {
    const std::size_t n = times.size();
    const double median = (times[(n - 1) / 2] + times[n / 2]) / 2;
    TransformerConfig config = sizes.config;
    config.num_layers = layers;
    const double flops = Flops(config, Index{side} * side + sizes.text, mode);
    return Head() + fmt::format(R"("flops": {:.6e}, "median_s": {:.6f}, "min_s": {:.6f}, "tflop_per_s": {:.3f}, )"
                                R"("share": {:.4f}, "seconds_of_60_layers": {:.6f}, "memory_gb": {:.2f}}})",
                                flops, median, times.front(), flops / median / 1e12, flops / median / peak,
                                median * kWholeModel / layers, memory / 1e9);
  }
  std::string Text(const std::string& error) const { return Head() + "\"error\": " + Quoted(error) + "}"; }

 private:
  std::string Head() const {
    return fmt::format(R"({{"mode": "{}", "pixels": {}, "layers": {}, "layers_wanted": {}, "activations": "{}", )",
                       NameOf(mode), 16 * side, layers, layers_wanted, type == ElementType::kBf16 ? "bf16" : "fp32");
  }
};

int Bench(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count() > arguments.seconds;
  };
  LogLine(ChooseBackEnd({.back_end = arguments.cuda ? BackEnd::kCuda : BackEnd::kKokkos}));
  const std::unique_ptr<DeviceMeter> meter = MakeDeviceMeter();
  const double peak = MeasurePeaks(arguments.small ? BenchSizes::Small() : BenchSizes::QwenImage(), *meter).flops_per_s;
  const Sizes sizes = SizesOf(arguments.small);
  const ElementType type = arguments.cuda ? ElementType::kBf16 : ElementType::kFp32;

  const std::vector<double> planning = PlanSeconds(sizes, type);
  std::vector<std::string> rows;
  int failures = 0, left_out = 0;
  for (const int wanted : arguments.layers) {
    std::vector<int> tries{wanted};
    std::copy_if(std::begin(kFewerLayers), std::end(kFewerLayers), std::back_inserter(tries),
                 [&](int fewer) { return fewer < wanted; });
    std::unique_ptr<Passes> passes;
    int layers = 0;  // of `passes`
    for (const int side : sizes.sides) {
      for (const Mode mode : {Mode::kForward, Mode::kLora, Mode::kFrozen}) {
        if (late()) {
          ++left_out;
          continue;
        }
        // From the most layers on, until memory suffices.
        for (std::size_t i = 0; i < tries.size(); ++i) {
          const Row row{mode, side, tries[i], wanted, type};
          try {
            if (layers != tries[i]) {
              passes.reset();  // first: old and new weights need not fit together
              layers = 0;
              passes = std::make_unique<Passes>(sizes, tries[i], type);
              layers = tries[i];
            }
            const std::vector<double> times = passes->Seconds(mode, side, arguments.repeats, *meter);
            rows.push_back(row.Text(sizes, times, peak, meter->used_bytes()));
            break;
          } catch (const std::exception& error) {
            const bool of_memory = std::string_view(error.what()).find("memory") != std::string_view::npos;
            if (of_memory && i + 1 < tries.size()) continue;
            rows.push_back(row.Text(error.what()));
            ++failures;
            break;
          }
        }
      }
    }
  }
  std::string text;
  for (const std::string& row : rows) text += (text.empty() ? "" : ", ") + row;
  fmt::print(R"({{"benchmark": "passes", "back_end": "{}", "device": {}, "small": {}, "product_tflop_per_s": {:.3f}, )"
             R"("passes": [{}], "plan_seconds": [{:.4f}], "left_out": {}}})"
             "\n",
             arguments.cuda ? "cuda" : "kokkos", Quoted(meter->device()), arguments.small, peak / 1e12, text,
             fmt::join(planning, ", "), left_out);
  return failures > 0 ? 1 : 0;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = word.substr(std::min(word.find('=') + 1, word.size()));
    if (word == "--back_end=cuda") {
      arguments.cuda = true;
    } else if (word == "--back_end=kokkos") {
      arguments.cuda = false;
    } else if (word == "--small") {
      arguments.small = true;
    } else if (word.starts_with("--layers=")) {
      arguments.layers.clear();
      std::istringstream list(value);
      for (std::string layers; std::getline(list, layers, ',');) arguments.layers.push_back(std::stoi(layers));
    } else if (word.starts_with("--repeats=")) {
      arguments.repeats = std::max(1, std::stoi(value));
    } else if (word.starts_with("--seconds=")) {
      arguments.seconds = std::stod(value);
    } else {
      throw UserError(word + "? --back_end=cuda|kokkos, --small, --layers=L[,L...], --repeats=N, --seconds=S");
    }
  }
  return arguments;
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  StartKernels(BenchThreads());
  int code = 0;
  try {
    code = Bench(Parse(argc, argv));
  } catch (const UserError& error) {
    std::fprintf(stderr, "bench_passes: %s\n", error.what());
    code = 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_passes: %s\n", error.what());
    code = 1;
  }
  StopKernels();
  return code;
}
