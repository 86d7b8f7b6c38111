#include "io/lora_file.hpp"

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "io/safetensors.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string kData = SPOTLIGHT_TEST_DATA_DIR;
const std::string kQ = "transformer_blocks.0.attn.to_q";
const std::string kUp = "transformer_blocks.1.img_mlp.net.0.proj";

HostTensor Filled(const Shape& shape, float value) {
  return {shape, std::vector<float>(static_cast<std::size_t>(NumElements(shape)), value)};
}

// A of ones and B of twos for the attention of block 0 and the MLP of block 1, rank 2.
WeightMap TwoModules(const std::string& prefix) {
  WeightMap tensors;
  tensors[prefix + kQ + ".lora_A.weight"] = Filled({2, 3}, 1);
  tensors[prefix + kQ + ".lora_B.weight"] = Filled({3, 2}, 2);
  tensors[prefix + kUp + ".lora_A.weight"] = Filled({2, 3}, 1);
  tensors[prefix + kUp + ".lora_B.weight"] = Filled({12, 2}, 2);
  return tensors;
}

class LoraFileTest : public IoTest {
 protected:
  std::string Write(const WeightMap& tensors, const std::map<std::string, std::string>& metadata = {}) const {
    WriteSafetensors(Path("adapter.safetensors"), tensors, metadata);
    return Path("adapter.safetensors");
  }

  // Of B of kQ and of kUp: both are constant.
  static std::vector<float> FoldedB(const LoraFile& lora) {
    return {lora.tensors.at(kQ + ".lora_B.weight").data.at(0), lora.tensors.at(kUp + ".lora_B.weight").data.at(0)};
  }

  void ExpectRefused(const WeightMap& tensors, const std::map<std::string, std::string>& metadata,
                     std::initializer_list<std::string> parts) const {
    const std::string path = Write(tensors, metadata);
    ExpectError<UserError>([&] { ReadLora(path); }, parts);
    ExpectError<UserError>([&] { ReadLora(path); }, {path});
  }

  // TwoModules and one more tensor, or another one of that name.
  void ExpectTensorRefused(const std::string& name, const HostTensor& tensor,
                           std::initializer_list<std::string> parts) const {
    WeightMap tensors = TwoModules("transformer.");
    tensors[name] = tensor;
    ExpectRefused(tensors, {}, parts);
  }

  // A PEFT folder and diffusers metadata with this field, which take it the same way.
  void ExpectFieldRefused(const std::string& field, const std::string& value,
                          std::initializer_list<std::string> parts) {
    const std::string fields = "\"r\": 2, \"lora_alpha\": 4, \"" + field + "\": " + value + "}";
    WriteFile("adapter_config.json", "{\"peft_type\": \"LORA\", " + fields);
    WriteSafetensors(Path("adapter_model.safetensors"), TwoModules("base_model.model."), {});
    ExpectError<UserError>([&] { ReadLora(folder_.string()); }, parts);
    ExpectError<UserError>([&] { ReadLora(folder_.string()); }, {Path("adapter_config.json"), "\"" + field + "\""});
    ExpectRefused(TwoModules(""), {{"lora_adapter_metadata", "{" + fields}}, parts);
  }
};

TEST_F(LoraFileTest, ReadsWhatItWrites) {
  const WeightMap written = TwoModules("");
  WriteLoraFiles(folder_.string(), written, 2, {"to_q", "img_mlp.net.0.proj"}, "tiny");
  for (const std::string& path :
       {folder_.string(), Path("pytorch_lora_weights.safetensors"), Path("adapter_model.safetensors")}) {
    const LoraFile lora = ReadLora(path);
    EXPECT_EQ(lora.rank, 2);
    EXPECT_THAT(lora.modules, ElementsAre(kQ, kUp));
    EXPECT_THAT(lora.targets, ElementsAre("to_q", "img_mlp.net.0.proj"));
    EXPECT_THAT(lora.notes, IsEmpty());
    ASSERT_EQ(lora.tensors.size(), written.size());
    for (const auto& [name, tensor] : written) {
      EXPECT_EQ(lora.tensors.at(name).shape, tensor.shape) << path;
      EXPECT_EQ(lora.tensors.at(name).data, tensor.data) << path;
    }
  }
  EXPECT_EQ(ReadLora(folder_.string()).path, Path("pytorch_lora_weights.safetensors"));
}

TEST_F(LoraFileTest, WritesTheMetadataThatLoadersNeedAndNoMore) {
  WriteLoraFiles(folder_.string(), TwoModules(""), 2, {"to_q"}, "tiny");
  const SafetensorsFile file(Path("pytorch_lora_weights.safetensors"));
  EXPECT_EQ(file.metadata().at("lora_adapter_metadata"),
            R"({"transformer.lora_alpha":2,"transformer.r":2,"transformer.target_modules":["to_q"]})");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_THAT(file.metadata(), SizeIs(2));
  EXPECT_TRUE(file.Has("transformer." + kQ + ".lora_A.weight"));
  EXPECT_TRUE(SafetensorsFile(Path("adapter_model.safetensors")).Has("base_model.model." + kQ + ".lora_A.weight"));
}

TEST_F(LoraFileTest, AModelFolderMayHaveAnyName) {
  WriteLoraFiles(folder_.string(), TwoModules(""), 2, {"to_q"}, "tiny\xff");
  EXPECT_THAT(ReadFile(Path("adapter_config.json")), HasSubstr("tiny\xef\xbf\xbd\""));
}

// The libraries' own files: B (A x) is what PEFT's change of W makes of x.
TEST_F(LoraFileTest, AdaptersOfTheLibrariesMeanWhatTheyMeanThere) {
  const SafetensorsFile expected(kData + "/adapters/expected.safetensors");
  const std::map<std::string, std::pair<int, std::size_t>> rank_and_modules = {
      {"peft", {2, 20}}, {"pipeline", {4, 8}}, {"model", {3, 4}}};
  for (const auto& [name, numbers] : rank_and_modules) {
    const LoraFile lora = ReadLora(kData + "/adapters/" + name);
    EXPECT_EQ(lora.rank, numbers.first);
    EXPECT_THAT(lora.modules, SizeIs(numbers.second));
    EXPECT_THAT(lora.notes, IsEmpty());
    for (const std::string& module : lora.modules) {
      const HostTensor& a = lora.tensors.at(module + ".lora_A.weight");
      const HostTensor& b = lora.tensors.at(module + ".lora_B.weight");
      const std::size_t in = static_cast<std::size_t>(a.shape[1]), rank = static_cast<std::size_t>(lora.rank);
      const std::vector<float> probe = expected.Read("probe." + std::to_string(in)).data;
      const std::vector<float> change = expected.Read(name + ".probe." + module).data;
      ASSERT_EQ(static_cast<std::size_t>(b.shape[0]), change.size());
      std::vector<double> inner(rank);
      for (std::size_t k = 0; k < rank; ++k) {
        for (std::size_t i = 0; i < in; ++i) inner[k] += static_cast<double>(a.data[k * in + i]) * probe[i];
      }
      double error = 0, norm = 0;
      for (std::size_t o = 0; o < change.size(); ++o) {
        double sum = 0;
        for (std::size_t k = 0; k < rank; ++k) sum += b.data[o * rank + k] * inner[k];
        error += (sum - change[o]) * (sum - change[o]);
        norm += change[o] * change[o];
      }
      EXPECT_LT(std::sqrt(error / norm), 2e-6) << name << " " << module;
    }
  }
}

TEST_F(LoraFileTest, FoldsTheScaleOfTheGoldenAdapter) {
  const std::string path = kData + "/golden/lora/pytorch_lora_weights.safetensors";
  const LoraFile lora = ReadLora(path);
  EXPECT_EQ(lora.rank, 4);
  EXPECT_THAT(lora.targets, SizeIs(12));
  EXPECT_THAT(lora.modules, SizeIs(24));
  for (const auto& [name, tensor] : ReadSafetensors(path)) {
    std::vector<float> scaled = tensor.data;
    if (name.ends_with("lora_B.weight")) {
      for (float& value : scaled) value *= 2;  // alpha 8 / r 4
    }
    EXPECT_EQ(lora.tensors.at(name.substr(std::string("transformer.").size())).data, scaled) << name;
  }
}

TEST_F(LoraFileTest, ReadsScalesFromPatterns) {
  const std::string metadata = R"({"r": 2, "lora_alpha": 4, "alpha_pattern": {"img_mlp.net.0.proj": 1}})";
  EXPECT_THAT(FoldedB(ReadLora(Write(TwoModules(""), {{"lora_adapter_metadata", metadata}}))), ElementsAre(4, 1));
  const std::string prefixed = R"({"transformer.r": 8, "transformer.rank_pattern": {".*proj": 2, "to_q": 2},
    "transformer.lora_alpha": 8, "transformer.alpha_pattern": {"transformer_blocks\\.[0-9]\\.attn\\..*": 6}})";
  EXPECT_THAT(FoldedB(ReadLora(Write(TwoModules("transformer."), {{"lora_adapter_metadata", prefixed}}))),
              ElementsAre(6, 8));
  // PEFT's default of lora_alpha is 8.
  EXPECT_THAT(FoldedB(ReadLora(Write(TwoModules(""), {{"lora_adapter_metadata", R"({"r": 2})"}}))), ElementsAre(8, 8));
}

TEST_F(LoraFileTest, ReadsAlphaTensorsAndOtherNames) {
  for (const std::string prefix : {"diffusion_model.", "transformer.", ""}) {
    WeightMap tensors = TwoModules(prefix);
    tensors[prefix + kQ + ".alpha"] = {{}, {1}};
    tensors[prefix + kUp + ".alpha"] = {{1}, {6}};
    const LoraFile lora = ReadLora(Write(tensors));
    EXPECT_THAT(FoldedB(lora), ElementsAre(1, 6));
    EXPECT_THAT(lora.notes, IsEmpty());
  }
  WeightMap renamed;
  for (const auto& [name, tensor] : TwoModules("diffusion_model.")) {
    const std::size_t factor = name.find(".lora_");
    const std::string kind = name.substr(factor, 7) == ".lora_A" ? ".lora_down" : ".lora_up";
    renamed[name.substr(0, factor) + kind + ".weight"] = tensor;
  }
  EXPECT_THAT(FoldedB(ReadLora(Write(renamed))), ElementsAre(2, 2));
  WeightMap with_name;  // as in a PEFT model's own state
  for (const auto& [name, tensor] : TwoModules("transformer.")) {
    with_name[name.substr(0, name.size() - 6) + "default.weight"] = tensor;
  }
  EXPECT_THAT(FoldedB(ReadLora(Write(with_name))), ElementsAre(2, 2));
}

TEST_F(LoraFileTest, SaysWhereItHadToAssumeTheScale) {
  WeightMap tensors = TwoModules("transformer.");
  const std::string path = Write(tensors, {{"format", "pt"}});
  LoraFile lora = ReadLora(path);
  EXPECT_THAT(FoldedB(lora), ElementsAre(2, 2));
  EXPECT_THAT(lora.notes, ElementsAre(HasSubstr("says nothing about the scale of 2 of 2 layers; alpha = r is taken")));
  EXPECT_THAT(lora.notes.front(), HasSubstr(path));
  tensors["transformer." + kQ + ".alpha"] = {{}, {4}};
  lora = ReadLora(Write(tensors));
  EXPECT_THAT(FoldedB(lora), ElementsAre(4, 2));
  EXPECT_THAT(lora.notes, ElementsAre(HasSubstr("1 of 2 layers")));
}

TEST_F(LoraFileTest, RefusesOtherKindsOfAdapterByTheirFields) {
  ExpectFieldRefused("use_dora", "true", {"\"use_dora\" is true: DoRA", "plain LoRA is supported"});
  ExpectFieldRefused("use_rslora", "true", {"rsLoRA, scaled by alpha / sqrt(r)"});
  ExpectFieldRefused("lora_bias", "true", {"a bias in B"});
  ExpectFieldRefused("bias", "\"all\"", {"\"bias\" is \"all\"", "biases"});
  ExpectFieldRefused("modules_to_save", "[\"proj_out\"]", {"[\"proj_out\"]", "whole modules"});
  ExpectFieldRefused("fan_in_fan_out", "true", {"transposed"});
  ExpectFieldRefused("init_lora_weights", "\"pissa_niter_4\"", {"\"pissa_niter_4\"", "changed the base's weights"});
  ExpectFieldRefused("alpha_pattern", "[1]", {"[1]", "an object of module pattern"});
  ExpectFieldRefused("alpha_pattern", "{\"to_q\": \"2\"}", {"\"to_q\" is \"2\"", "a number is meant"});
  ExpectFieldRefused("alpha_pattern", "{\"to_(q\": 2}", {"\"to_(q\" is not a regular expression"});
  ExpectFieldRefused("lora_alpha", "\"4\"", {"\"lora_alpha\" is \"4\"", "a number is meant"});
}

TEST_F(LoraFileTest, RefusesOtherPeftTypes) {
  WriteSafetensors(Path("adapter_model.safetensors"), TwoModules("base_model.model."), {});
  WriteFile("adapter_config.json", R"({"peft_type": "LOKR", "r": 2})");
  ExpectError<UserError>([&] { ReadLora(folder_.string()); },
                         {Path("adapter_config.json"), "\"peft_type\" is \"LOKR\"", "peft_type LORA"});
  WriteFile("adapter_config.json", R"({"peft_type": null, "r": 2, "lora_alpha": 6, "use_dora": null, "bias": null})");
  EXPECT_THAT(FoldedB(ReadLora(folder_.string())), ElementsAre(6, 6));
}

TEST_F(LoraFileTest, RefusesOtherKindsOfAdapterByTheirTensors) {
  const HostTensor one = Filled({1}, 1);
  ExpectTensorRefused("transformer." + kQ + ".lora_magnitude_vector", one, {"lora_magnitude_vector means DoRA"});
  ExpectTensorRefused(kQ + ".dora_scale", one, {"dora_scale means DoRA"});
  ExpectTensorRefused(kQ + ".lokr_w1", one, {"lokr_w1 means LoKr"});
  ExpectTensorRefused(kQ + ".hada_w1_a", one, {"hada_w1_a means LoHa"});
  ExpectTensorRefused(kQ + ".lora_B.bias", one, {"a bias in B (lora_bias)"});
  ExpectTensorRefused(kQ + ".base_layer.weight", one, {"base_layer.weight means whole weights"});
  ExpectTensorRefused("lora_unet_transformer_blocks_0_attn_to_q.alpha", one, {"flattened"});
  ExpectTensorRefused("proj_out.weight", one, {"tensor proj_out.weight is not a part of a LoRA adapter"});
  ExpectTensorRefused(kQ + ".lora_C.weight", one, {"lora_C.weight is not a part"});
}

TEST_F(LoraFileTest, RefusesModulesThatCannotBeAdapted) {
  WeightMap tensors = TwoModules("transformer.");
  for (const std::string module : {"img_in", "norm_out.linear", "transformer_blocks.0.img_mod.1",
                                   "transformer_blocks.17.img_mod.1", "transformer_blocks.0.norm", "text_model.q"}) {
    tensors["transformer." + module + ".lora_A.weight"] = Filled({2, 3}, 1);
    tensors["transformer." + module + ".lora_B.weight"] = Filled({3, 2}, 1);
  }
  ExpectRefused(tensors, {},
                {"adapts img_in, norm_out.linear, text_model.q, transformer_blocks.N.img_mod.1, "
                 "transformer_blocks.N.norm, which cannot be adapted here",
                 "in each block attn.to_q, attn.to_k"});
}

TEST_F(LoraFileTest, RefusesTensorsThatDoNotFit) {
  const std::string a = "transformer." + kQ + ".lora_A.weight", b = "transformer." + kQ + ".lora_B.weight";
  ExpectTensorRefused(a, Filled({3, 3}, 1), {kQ + " has A [3, 3] and B [3, 2]", "[r, in] and [out, r] are meant"});
  ExpectTensorRefused(a, Filled({2}, 1), {kQ + " has A [2]"});
  ExpectTensorRefused(a, Filled({0, 3}, 1), {kQ + " has A [0, 3]"});
  ExpectTensorRefused(a, Filled({2, 3, 3, 3}, 1), {kQ, "[2, 3, 3, 3]", "a convolution"});
  ExpectTensorRefused(b, Filled({3, 2}, std::numeric_limits<float>::quiet_NaN()), {b + " is not finite: element 0 of"});
  ExpectTensorRefused(a, Filled({2, 3}, std::numeric_limits<float>::infinity()), {a + " is not finite", "inf"});
  ExpectTensorRefused(kQ + ".lora_A.weight", Filled({2, 3}, 1), {"two adapters of " + kQ, a});
  ExpectTensorRefused(kQ + ".alpha", Filled({2}, 1), {kQ + ".alpha has shape [2]; one number is meant"});

  WeightMap tensors = TwoModules("transformer.");
  tensors.erase(b);
  ExpectRefused(tensors, {}, {kQ + " has no lora_B"});
  tensors.erase(a);
  tensors[b] = Filled({3, 2}, 1);
  ExpectRefused(tensors, {}, {kQ + " has no lora_A"});
  tensors[a] = Filled({3, 3}, 1);
  tensors[b] = Filled({3, 3}, 1);
  ExpectRefused(tensors, {}, {kQ + " has rank 3 and " + kUp + " rank 2", "one rank"});
  ExpectRefused({}, {}, {"no tensors"});
}

TEST_F(LoraFileTest, RefusesScalesThatDisagree) {
  const std::string metadata = R"({"r": 2, "lora_alpha": 4})";
  WeightMap tensors = TwoModules("");
  ExpectRefused(tensors, {{"lora_adapter_metadata", R"({"r": 4, "lora_alpha": 4})"}},
                {"lora_adapter_metadata: r is 4 for " + kQ, "its tensors have rank 2"});
  ExpectRefused(tensors, {{"lora_adapter_metadata", "r=4"}}, {"lora_adapter_metadata is \"r=4\"", "JSON object"});
  tensors[kUp + ".alpha"] = Filled({1}, 1);
  ExpectRefused(tensors, {{"lora_adapter_metadata", metadata}}, {kUp + ".alpha", "one of them may say the scale"});
  ExpectTensorRefused(kQ + ".alpha", Filled({1}, std::numeric_limits<float>::quiet_NaN()),
                      {"alpha of " + kQ + " is nan"});
}

TEST_F(LoraFileTest, SaysWhatIsMissing) {
  ExpectError<UserError>([&] { ReadLora(folder_.string()); },
                         {folder_.string(),
                          "neither pytorch_lora_weights.safetensors (diffusers) nor "
                          "adapter_model.safetensors (PEFT)"});
  ExpectError<UserError>([&] { ReadLora(Path("none.safetensors")); }, {"none.safetensors: no such file"});
  ExpectError<UserError>([&] { ReadLora(WriteFile("adapter_model.bin", "x")); }, {"adapter_model.bin", ".safetensors"});
  WriteSafetensors(Path("adapter_model.safetensors"), TwoModules("base_model.model."), {});
  ExpectError<UserError>([&] { ReadLora(folder_.string()); },
                         {"adapter_model.safetensors", "adapter_config.json is missing beside it"});
}

}  // namespace
}  // namespace spotlight
