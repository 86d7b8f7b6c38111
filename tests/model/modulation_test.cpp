// The modulation table and bfloat16 weights: what they change, and what they must not.
#include <gtest/gtest.h>

#include "model/dit.hpp"
#include "model/model_weights.hpp"
#include "tests/model/golden.hpp"
#include "tests/model/tested_activations.hpp"

namespace spotlight {
namespace {

// Counts which tensors are read.
class CountingSource : public TensorSource {
 public:
  explicit CountingSource(std::shared_ptr<const TensorSource> source) : source_(std::move(source)) {}
  const std::string& place() const override { return source_->place(); }
  std::vector<std::string> Names() const override { return source_->Names(); }
  bool Has(const std::string& name) const override { return source_->Has(name); }
  Shape ShapeOf(const std::string& name) const override { return source_->ShapeOf(name); }
  void Read(const std::string& name, std::span<float> out) const override {
    ++reads[name];
    source_->Read(name, out);
  }
  void Read(const std::string& name, std::span<Bfloat16> out) const override {
    ++reads[name];
    source_->Read(name, out);
  }
  mutable std::map<std::string, int> reads;

 private:
  std::shared_ptr<const TensorSource> source_;
};

// Forward and adapter gradients of the set's LoRA case.
struct Case {
  explicit Case(const GoldenModel& model) : model_(model), file_(GoldenDir() + "/lora_case.safetensors") {
    const HostTensor hidden = file_.Read("hidden_states"), encoder = file_.Read("encoder_hidden_states");
    batch_ = hidden.shape[0];
    input_.text_tokens.assign(static_cast<std::size_t>(batch_), encoder.shape[1]);
    image_ = Fill(hidden.data);
    text_ = Fill(encoder.data);
    input_.image = image_.data();
    input_.text = text_.data();
    const std::vector<float> shape = file_.Read("img_shapes").data;
    input_.images = {{static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2])}};
    input_.levels = file_.Read("timestep").data;
    for (Index b = 0; b < batch_; ++b) input_.level_index.push_back(static_cast<int>(b));
  }

  static Buffer Fill(const std::vector<float>& host) {
    Buffer buffer(static_cast<Index>(host.size()));
    buffer.CopyFromHost(host);
    return buffer;
  }

  std::pair<std::vector<float>, std::vector<float>> Run(ModelWeights& weights, bool project_first) {
    const Buffer adapter = Fill(model_.adapter), cotangent = Fill(file_.Read("cotangent").data);
    Buffer gradient(adapter.size()), velocity(cotangent.size());
    gradient.Zero();
    const std::unique_ptr<Parameters> parameters = weights.WithAdapter(adapter.data(), gradient.data());
    Dit dit(model_.layout, tested_activations);
    DitInput input = input_;
    const Index rows = batch_ * input.text_tokens[0];
    Buffer projected(rows * model_.layout->config().width());
    if (project_first) {
      dit.ProjectText(*parameters, rows, text_.data(), projected.data());
      input.projected_text = projected.data();
      input.text = nullptr;
    }
    dit.Forward(*parameters, input, {.keep = true}, velocity.data());
    dit.Backward(*parameters, input, cotangent.data(), {});
    std::vector<float> v(static_cast<std::size_t>(velocity.size())), g(static_cast<std::size_t>(gradient.size()));
    velocity.CopyToHost(v);
    gradient.CopyToHost(g);
    return {v, g};
  }

  const GoldenModel& model_;
  SafetensorsFile file_;
  Index batch_ = 0;
  DitInput input_;
  Buffer image_, text_;
};

class ModulationTableTest : public testing::TestWithParam<Precision> {};

TEST_P(ModulationTableTest, GivesTheBitsOfResidentModulation) {
  if (!InGoldenSet(GoldenDir() + "/lora_case.safetensors")) return;
  const GoldenModel model = LoadGoldenLora();
  Case c(model);
  ModelWeights resident(model.layout, model.source, GetParam(), {});
  const auto expected = c.Run(resident, false);
  // More levels than the pass needs, in another order: 28 of a schedule in front.
  std::vector<float> sigmas;
  for (int i = 0; i < 28; ++i) sigmas.push_back(static_cast<float>(i) / 28.0f);
  sigmas.insert(sigmas.end(), c.input_.levels.rbegin(), c.input_.levels.rend());
  auto source = std::make_shared<CountingSource>(model.source);
  ModelWeights tabled(model.layout, source, GetParam(), sigmas);
  const auto seen = c.Run(tabled, true);
  EXPECT_EQ(seen.first, expected.first);
  EXPECT_EQ(seen.second, expected.second);
  for (const Parameter& parameter : model.layout->base().parameters()) {
    EXPECT_EQ(source->reads[parameter.name], 1) << parameter.name << " is read once, and only its table is kept";
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, ModulationTableTest, testing::Values(Precision::kFp32, Precision::kBf16));

TEST(ModulationTable, SaysWhichSigmaIsMissing) {
  const GoldenModel model = LoadGoldenLora();
  NodeMemory memory;
  const ModulationTable table(*model.layout, *model.source, Precision::kFp32, {0.25f, 0.5f, 0.25f}, memory);
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(table.Row(0.5f), 1);
  EXPECT_THROW(table.Row(0.75f), std::exception);
}

// bfloat16 weights are no further from the fp32 result than 1.5 times the library's own bfloat16 run, in every case
// that has one.
TEST(Bfloat16Golden, IsAsGoodAsTheLibrarys) {
  int compared = 0;
  const nlohmann::json set = GoldenSpec();
  for (const auto& spec : set.at("transformers")) {
    const std::string name = spec.at("name");
    const GoldenModel model = LoadGoldenModel(name);
    WeightStorage storage(*model.layout, Precision::kBf16);
    storage.Load(*model.source, 0, static_cast<int>(model.layout->parts().size()));
    ResidentParameters parameters(*model.layout, storage);
    for (const auto& entry : spec.at("cases")) {
      const std::string path = GoldenDir() + "/" + name + "_" + entry.at("name").get<std::string>() + ".safetensors";
      if (!InGoldenSet(path)) continue;
      const SafetensorsFile file(path);
      if (!file.Has("output_bf16")) continue;
      const HostTensor hidden = file.Read("hidden_states"), encoder = file.Read("encoder_hidden_states");
      const Buffer image = Case::Fill(hidden.data), text = Case::Fill(encoder.data);
      const std::vector<float> shape = file.Read("img_shapes").data, golden = file.Read("output").data;
      DitInput input{.text_tokens = std::vector<Index>(static_cast<std::size_t>(encoder.shape[0]), encoder.shape[1]),
                     .images = {{static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2])}},
                     .image = image.data(),
                     .text = text.data(),
                     .levels = file.Read("timestep").data};
      for (int b = 0; b < static_cast<int>(input.levels.size()); ++b) input.level_index.push_back(b);
      std::vector<std::uint8_t> mask;
      if (file.Has("encoder_hidden_states_mask")) {
        for (const float bit : file.Read("encoder_hidden_states_mask").data) mask.push_back(bit != 0 ? 1 : 0);
        input.text_mask = mask.data();
      }
      Buffer velocity(static_cast<Index>(golden.size()));
      Dit dit(model.layout);
      dit.Forward(parameters, input, {}, velocity.data());
      std::vector<float> ours(golden.size());
      velocity.CopyToHost(ours);
      const Distance distance = Compare(ours, golden), library = Compare(file.Read("output_bf16").data, golden);
      EXPECT_LE(distance.rel_l2, 1.5 * library.rel_l2) << path;
      EXPECT_LE(distance.rel_max, 1.5 * library.rel_max) << path;
      ++compared;
    }
  }
  EXPECT_GE(compared, 1);
}

// A model that is not stored in bfloat16 shows the rounding of its weights, and no more than a library's run of it.
TEST(Bfloat16, RoundsTheWeightsAndNothingElse) {
  const GoldenModel model = LoadGoldenModel("tiny");
  WeightStorage exact(*model.layout, Precision::kFp32), rounded(*model.layout, Precision::kBf16);
  exact.Assign(model.weights);
  rounded.Assign(model.weights);
  WeightMap widened = model.layout->base().ToWeightMap(model.weights);
  for (auto& [name, tensor] : widened) {
    if (tensor.shape.size() < 2) continue;
    for (float& value : tensor.data) value = ToFloat(ToBfloat16(value));
  }
  std::vector<float> flat(model.weights.size());
  model.layout->base().Load(WeightMapSource(widened, "rounded"), flat);
  WeightStorage reference(*model.layout, Precision::kFp32);
  reference.Assign(flat);
  const Buffer image = Case::Fill(std::vector<float>(12 * 16, 0.5f)),
               text = Case::Fill(std::vector<float>(3 * 48, 0.25f));
  const DitInput input{.text_tokens = {3},
                       .images = {{1, 3, 4}},
                       .image = image.data(),
                       .text = text.data(),
                       .levels = {0.4f},
                       .level_index = {0}};
  const auto run = [&](const WeightStorage& storage) {
    ResidentParameters parameters(*model.layout, storage);
    Buffer velocity(12 * 16);
    Dit dit(model.layout);
    dit.Forward(parameters, input, {}, velocity.data());
    std::vector<float> host(12 * 16);
    velocity.CopyToHost(host);
    return host;
  };
  EXPECT_CLOSE(run(rounded), run(reference), 1e-6, 2e-6, "bfloat16 storage");
  const Distance change = Compare(run(rounded), run(exact));
  EXPECT_GT(change.rel_l2, 1e-4);
  EXPECT_LT(change.rel_l2, 2e-2);
}

}  // namespace
}  // namespace spotlight
