// The transformer against diffusers' numbers: every case that lies in the golden folder, forward,
// intermediates, gradients, LoRA. Tolerances of fp32 are those of the set's README; those of bfloat16 activations
// follow from its rounding, see Bounds.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "io/lora_file.hpp"
#include "kernels/norm.hpp"
#include "model/dit.hpp"
#include "model/dit_activations.hpp"
#include "model/model_weights.hpp"
#include "tests/model/golden.hpp"
#include "tests/model/tested_activations.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

// Of relative L2 error, and of the largest error relative to the largest value. With bfloat16 activations a block
// rounds some 14 times one after the other, by 0.4 x 2^-9 in the mean square, and the set's models have two blocks:
// 0.0041, and for gradients, which meet twice as many, 0.0058. The bounds are two and four times that, because single
// layers and parameters are compared, and some are small differences; of a small input LayerNorm makes more.
struct Bounds {
  double l2, max;
};
Bounds ForwardBounds(bool small_input) {
  if (tested_activations == ElementType::kBf16) return {0.0083, 0.017};
  return small_input ? Bounds{3e-5, 6e-5} : Bounds{8e-6, 2e-5};
}
Bounds GradientBounds(bool small_input) {
  if (tested_activations == ElementType::kBf16) return small_input ? Bounds{0.08, 0.1} : Bounds{0.023, 0.03};
  return {2e-4, 6e-4};
}

// The inputs of a case file in kernel memory.
struct CaseInput {
  explicit CaseInput(const SafetensorsFile& file) {
    const HostTensor hidden = file.Read("hidden_states"), encoder = file.Read("encoder_hidden_states");
    input.text_tokens.assign(static_cast<std::size_t>(hidden.shape[0]), encoder.shape[1]);
    image.Resize(static_cast<Index>(hidden.data.size()));
    image.CopyFromHost(hidden.data);
    text.Resize(static_cast<Index>(encoder.data.size()));
    text.CopyFromHost(encoder.data);
    const HostTensor shapes = file.Read("img_shapes"), timestep = file.Read("timestep");
    for (std::size_t i = 0; i < shapes.data.size(); i += 3) {
      input.images.push_back({static_cast<int>(shapes.data[i]), static_cast<int>(shapes.data[i + 1]),
                              static_cast<int>(shapes.data[i + 2])});
    }
    for (Index b = 0; b < input.batch(); ++b) {
      input.levels.push_back(timestep.data[static_cast<std::size_t>(b)]);
      input.level_index.push_back(static_cast<int>(b));
    }
    if (file.Has("encoder_hidden_states_mask")) {
      for (const float bit : file.Read("encoder_hidden_states_mask").data) mask.push_back(bit != 0 ? 1 : 0);
      input.text_mask = mask.data();
    }
    input.image = image.data();
    input.text = text.data();
  }

  DitInput input;
  Buffer image, text;
  std::vector<std::uint8_t> mask;
};

Index OutputSize(const GoldenModel& model, const DitInput& input) {
  const TransformerConfig& config = model.layout->config();
  return input.batch() * input.image_tokens() * config.patch_size * config.patch_size * config.out_channels;
}

// The model folder that <model>_<case> belongs to, or "".
std::string ModelOf(const std::string& name) {
  static const nlohmann::json spec = GoldenSpec();
  std::string model;
  for (const auto& transformer : spec.at("transformers")) {
    const std::string candidate = transformer.at("name");
    if (name.starts_with(candidate + "_") && candidate.size() > model.size()) model = candidate;
  }
  return model;
}

// Every <model>_<case>.safetensors with a forward pass in it.
std::vector<std::string> Cases() {
  std::vector<std::string> cases;
  for (const auto& entry : fs::directory_iterator(GoldenDir())) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".safetensors" || name.ends_with("_grads") || ModelOf(name).empty()) continue;
    if (SafetensorsFile(entry.path().string()).Has("hidden_states")) cases.push_back(name);
  }
  std::sort(cases.begin(), cases.end());
  return cases;
}

class DitGolden : public testing::TestWithParam<std::string> {
 protected:
  std::string path(const std::string& suffix = "") const {
    return GoldenDir() + "/" + GetParam() + suffix + ".safetensors";
  }
  GoldenModel model_ = LoadGoldenModel(ModelOf(GetParam()));
  const bool small_ = GetParam().ends_with("small_input");
  const Bounds bounds_ = ForwardBounds(small_);
};

// q or k of one stream, [B, N, H, D] after its norm and before rope, from the packed projection [B, N, 3, H, D].
std::vector<float> NormedHeads(const ActivationBuffer& qkv, Index rows, Index heads, Index head, int which,
                               const float* weight) {
  const std::vector<float> packed = Host(qkv);
  std::vector<float> x(static_cast<std::size_t>(rows * heads * head)), y(x.size()),
      rstd(static_cast<std::size_t>(rows * heads));
  for (Index r = 0; r < rows; ++r) {
    const auto from = packed.begin() + (r * 3 + which) * heads * head;
    std::copy(from, from + heads * head, x.begin() + r * heads * head);
  }
  RmsNormForward(rows * heads, head, 1e-6f, x.data(), weight, y.data(), rstd.data());
  return y;
}

TEST_P(DitGolden, Forward) {
  const SafetensorsFile file(path());
  CaseInput c(file);
  Dit dit(model_.layout, tested_activations);
  Buffer weights(static_cast<Index>(model_.weights.size())), velocity(OutputSize(model_, c.input));
  weights.CopyFromHost(model_.weights);
  FlatParameters memory(*model_.layout, weights.data());
  dit.Forward(memory, c.input, {}, velocity.data());
  EXPECT_CLOSE(Host(velocity), file.Read("output").data, bounds_.l2, bounds_.max, "output");
  if (!file.Has("inter.temb")) return;

  dit.Forward(memory, c.input, {.keep = true, .last_text_branch = true}, velocity.data());
  EXPECT_CLOSE(Host(velocity), file.Read("output").data, bounds_.l2, bounds_.max, "output, kept");
  const DitActivations& act = dit.activations();
  const TransformerConfig& config = model_.layout->config();
  const BlockActivations& block0 = act.blocks[0];
  const Index heads = config.num_attention_heads, head = config.attention_head_dim;
  const StreamLayout& image0 = model_.layout->blocks[0].image;
  const StreamLayout& text0 = model_.layout->blocks[0].text;
  const float* vectors0 = memory.Use(model_.layout->block_part(0)).vectors;
  std::map<std::string, std::vector<float>> seen = {
      {"time_proj", Host(act.time.sinusoid)},
      {"temb", Host(act.time.temb)},
      {"img_in", Host(block0.image.input)},
      {"txt_norm", Host(act.text_normed)},
      {"txt_in", Host(block0.text.input)},
      {"rope.img_cos", Host(act.rope.image_cos)},
      {"rope.img_sin", Host(act.rope.image_sin)},
      {"rope.txt_cos", Host(act.rope.text_cos)},
      {"rope.txt_sin", Host(act.rope.text_sin)},
      {"block0.img_mod", Host(block0.image.modulation_values)},
      {"block0.txt_mod", Host(block0.text.modulation_values)},
      {"block0.img_q_normed", NormedHeads(block0.image.qkv, c.input.batch() * c.input.image_tokens(), heads, head, 0,
                                          vectors0 + image0.norm_q)},
      {"block0.txt_k_normed",
       NormedHeads(block0.text.qkv, c.input.batch() * c.input.text_tokens[0], heads, head, 1, vectors0 + text0.norm_k)},
      {"block0.attn.img", Host(block0.image.attention_out)},
      {"block0.attn.txt", Host(block0.text.attention_out)},
      {"block0.img_mlp", Host(block0.image.mlp_out)},
      {"norm_out", Host(act.normed_out)}};
  for (std::size_t i = 0; i < act.blocks.size(); ++i) {
    const bool last = i + 1 == act.blocks.size();
    const std::string prefix = "block" + std::to_string(i);
    seen[prefix + ".img_out"] = Host(last ? act.image : act.blocks[i + 1].image.input);
    seen[prefix + ".txt_out"] = Host(last ? act.text : act.blocks[i + 1].text.input);
  }
  int compared = 0;
  for (const std::string& name : file.names()) {
    if (!name.starts_with("inter.")) continue;
    ASSERT_TRUE(seen.count(name.substr(6))) << name << " is not compared";
    EXPECT_CLOSE(seen[name.substr(6)], file.Read(name).data, bounds_.l2, bounds_.max, name);
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

// d loss / d tensor as the set stores it: whole, or a large matrix through two random sketches and its norm.
void CompareGradient(const SafetensorsFile& golden, const std::string& name, const std::vector<float>& gradient,
                     const Shape& shape, const Bounds& bounds = GradientBounds(false)) {
  if (golden.Has("grad." + name)) {
    const HostTensor expected = golden.Read("grad." + name);
    double largest = 0;
    for (const float value : expected.data) largest = std::max(largest, std::abs(static_cast<double>(value)));
    if (largest == 0) {
      for (const float value : gradient) ASSERT_LE(std::abs(value), 1e-7) << name << " must be zero";
      return;
    }
    EXPECT_CLOSE(gradient, expected.data, bounds.l2, bounds.max, "grad " + name);
    return;
  }
  ASSERT_TRUE(golden.Has("gradR." + name)) << name << " has no golden gradient";
  const Index rows = shape[0], columns = shape[1];
  const HostTensor right = golden.Read("sketch." + std::to_string(columns));
  const HostTensor left = golden.Read("sketch." + std::to_string(rows));
  const Index k = right.shape[1];
  std::vector<double> r(static_cast<std::size_t>(rows * k)), l(static_cast<std::size_t>(k * columns));
  double square = 0;
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) {
      const double g = gradient[static_cast<std::size_t>(i * columns + j)];
      square += g * g;
      for (Index s = 0; s < k; ++s) {
        r[static_cast<std::size_t>(i * k + s)] += g * right.data[static_cast<std::size_t>(j * k + s)];
        l[static_cast<std::size_t>(s * columns + j)] += left.data[static_cast<std::size_t>(i * k + s)] * g;
      }
    }
  }
  EXPECT_CLOSE(r, golden.Read("gradR." + name).data, bounds.l2, bounds.max, "gradR " + name);
  EXPECT_CLOSE(l, golden.Read("gradL." + name).data, bounds.l2, bounds.max, "gradL " + name);
  const double norm = golden.Read("gradnorm." + name).data[0];
  EXPECT_NEAR(std::sqrt(square), norm, bounds.l2 * norm) << name;
}

TEST_P(DitGolden, Backward) {
  if (!fs::exists(path("_grads"))) return;  // the set has gradients for some cases only
  const SafetensorsFile file(path()), golden(path("_grads"));
  CaseInput c(file);
  const std::vector<float> cotangent = file.Read("cotangent").data;
  const Index size = static_cast<Index>(model_.weights.size());
  Buffer weights(size), gradient(size), velocity(OutputSize(model_, c.input)), dvelocity(velocity.size());
  weights.CopyFromHost(model_.weights);
  dvelocity.CopyFromHost(cotangent);
  const Bounds bounds = GradientBounds(small_);
  std::vector<float> first;
  for (const bool recompute : {false, true}) {
    Dit dit(model_.layout, tested_activations);
    gradient.Zero();
    Buffer dimage(c.image.size()), dtext(c.text.size());
    FlatParameters memory(*model_.layout, weights.data(), gradient.data());
    dit.Forward(memory, c.input, {.keep = true, .recompute = recompute}, velocity.data());
    dit.Backward(memory, c.input, dvelocity.data(), {dimage.data(), dtext.data()});
    const std::vector<float> all = Host(gradient);
    for (const Parameter& parameter : model_.layout->base().parameters()) {
      const auto begin = all.begin() + parameter.offset;
      CompareGradient(golden, parameter.name, {begin, begin + parameter.size}, parameter.shape, bounds);
    }
    CompareGradient(golden, "hidden_states", Host(dimage), {1, dimage.size()}, bounds);
    CompareGradient(golden, "encoder_hidden_states", Host(dtext), {1, dtext.size()}, bounds);
    if (recompute) {
      EXPECT_EQ(all, first) << "recomputed blocks give the same bits";
    }
    first = all;
  }
}

// Row 1 of the masked case equals a run of its own without the padding, and does not see what the padding holds.
TEST_P(DitGolden, MaskedTokensAreInvisible) {
  const SafetensorsFile file(path());
  if (!file.Has("encoder_hidden_states_mask")) return;
  CaseInput c(file);
  Buffer weights(static_cast<Index>(model_.weights.size())), velocity(OutputSize(model_, c.input));
  weights.CopyFromHost(model_.weights);
  FlatParameters memory(*model_.layout, weights.data());
  Dit dit(model_.layout, tested_activations);
  dit.Forward(memory, c.input, {}, velocity.data());
  const std::vector<float> before = Host(velocity);
  std::vector<float> text = Host(c.text);
  const std::size_t width = static_cast<std::size_t>(model_.layout->config().joint_attention_dim);
  for (std::size_t token = 0; token < c.mask.size(); ++token) {
    if (c.mask[token] == 0) std::fill_n(text.begin() + static_cast<Index>(token * width), width, 7.0f);
  }
  c.text.CopyFromHost(text);
  dit.Forward(memory, c.input, {}, velocity.data());
  EXPECT_EQ(Host(velocity), before);
}

TEST_P(DitGolden, ASampleDoesNotDependOnItsBatch) {
  const SafetensorsFile file(path());
  CaseInput c(file);
  Buffer weights(static_cast<Index>(model_.weights.size())), velocity(OutputSize(model_, c.input));
  weights.CopyFromHost(model_.weights);
  FlatParameters memory(*model_.layout, weights.data());
  Dit dit(model_.layout, tested_activations);
  dit.Forward(memory, c.input, {}, velocity.data());
  const std::vector<float> together = Host(velocity);
  const Index batch = c.input.batch(), row = velocity.size() / batch;
  const Index image_row = c.image.size() / batch, text_row = c.text.size() / batch;
  for (Index b = 0; b < batch; ++b) {
    DitInput alone = c.input;
    alone.text_tokens.resize(1);
    alone.image += b * image_row;
    alone.text += b * text_row;
    if (alone.text_mask != nullptr) alone.text_mask += b * c.input.text_tokens[0];
    alone.levels = {c.input.levels[static_cast<std::size_t>(b)]};
    alone.level_index = {0};
    dit.Forward(memory, alone, {}, velocity.data());
    const std::vector<float> host = Host(velocity);
    EXPECT_TRUE(std::equal(host.begin(), host.begin() + row, together.begin() + b * row)) << "sample " << b;
  }
}

INSTANTIATE_TEST_SUITE_P(Set, DitGolden, testing::ValuesIn(Cases()), [](const auto& info) { return info.param; });

// What the tests above leave out where a case has none of it.
TEST(DitGoldenSet, IsThere) {
  const std::vector<std::string> cases = Cases();
  EXPECT_GE(cases.size(), 1u) << GoldenDir();
  if (std::getenv("SPOTLIGHT_GOLDEN_DIR") != nullptr) return;  // another set may have less
  const auto count = [&](const auto& has) { return std::count_if(cases.begin(), cases.end(), has); };
  const auto file = [](const std::string& name) { return GoldenDir() + "/" + name + ".safetensors"; };
  EXPECT_GE(count([&](const std::string& name) { return fs::exists(file(name + "_grads")); }), 4);
  EXPECT_GE(
      count([&](const std::string& name) { return SafetensorsFile(file(name)).Has("encoder_hidden_states_mask"); }), 2);
}

TEST(LoraGolden, ForwardAndGradients) {
  const std::string folder = GoldenDir();
  if (!InGoldenSet(folder + "/lora_case.safetensors")) return;
  const GoldenModel model = LoadGoldenLora();
  const std::vector<float>& adapter = model.adapter;
  const SafetensorsFile file(folder + "/lora_case.safetensors"), golden(folder + "/lora_grads.safetensors");
  CaseInput c(file);
  ModelWeights weights(model.layout, model.source, Precision::kFp32, {});
  Buffer trained(static_cast<Index>(adapter.size())), gradient(trained.size());
  trained.CopyFromHost(adapter);
  gradient.Zero();
  Buffer velocity(OutputSize(model, c.input)), dvelocity(velocity.size()), dimage(c.image.size()), dtext(c.text.size());
  Dit dit(model.layout, tested_activations);
  const Bounds bounds = ForwardBounds(false);
  dit.Forward(weights.Base(), c.input, {}, velocity.data());
  EXPECT_CLOSE(Host(velocity), file.Read("output_base").data, bounds.l2, bounds.max, "output_base");
  const std::unique_ptr<Parameters> parameters = weights.WithAdapter(trained.data(), gradient.data());
  Parameters& memory = *parameters;
  dit.Forward(memory, c.input, {.keep = true}, velocity.data());
  EXPECT_CLOSE(Host(velocity), file.Read("output").data, bounds.l2, bounds.max, "output");
  dvelocity.CopyFromHost(file.Read("cotangent").data);
  dit.Backward(memory, c.input, dvelocity.data(), {dimage.data(), dtext.data()});
  const std::vector<float> all = Host(gradient);
  for (const Parameter& parameter : model.layout->adapter().parameters()) {
    const auto begin = all.begin() + parameter.offset;
    CompareGradient(golden, "transformer." + parameter.name, {begin, begin + parameter.size}, parameter.shape);
  }
  CompareGradient(golden, "hidden_states", Host(dimage), {1, dimage.size()});
  CompareGradient(golden, "encoder_hidden_states", Host(dtext), {1, dtext.size()});
}

// The libraries' own files: imported and run through the network, they give the velocities of the libraries.
TEST(LoraGolden, AdaptersOfTheLibraries) {
  const std::string folder = SPOTLIGHT_TEST_DATA_DIR "/adapters";
  const SafetensorsFile file(folder + "/expected.safetensors");
  for (const std::string name : {"peft", "pipeline", "model"}) {
    const LoraFile lora = ReadLora(folder + "/" + name);
    const GoldenModel model = LoadGoldenModel("tiny", {lora.rank, static_cast<double>(lora.rank), lora.targets});
    std::vector<float> adapter(static_cast<std::size_t>(model.layout->adapter().size()));
    model.layout->adapter().Load(WeightMapSource(lora.tensors, lora.path), adapter);
    CaseInput c(file);
    ModelWeights weights(model.layout, model.source, Precision::kFp32, {});
    Buffer trained(static_cast<Index>(adapter.size())), velocity(OutputSize(model, c.input));
    trained.CopyFromHost(adapter);
    Dit dit(model.layout, tested_activations);
    const Bounds bounds = ForwardBounds(false);
    dit.Forward(weights.Base(), c.input, {}, velocity.data());
    EXPECT_CLOSE(Host(velocity), file.Read("output").data, bounds.l2, bounds.max, "without adapter");
    dit.Forward(*weights.WithAdapter(trained.data(), nullptr), c.input, {}, velocity.data());
    EXPECT_CLOSE(Host(velocity), file.Read(name + ".output").data, bounds.l2, bounds.max, name);
  }
}

}  // namespace
}  // namespace spotlight
