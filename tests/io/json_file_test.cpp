#include "io/json_file.hpp"

#include "base/error.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;

class JsonFileTest : public IoTest {
 protected:
  void ExpectRefused(const std::string& config, std::initializer_list<std::string> parts) {
    const std::string path = WriteFile("config.json", config);
    ExpectError<UserError>([&] { ReadTransformerConfig(path); }, parts);
    ExpectError<UserError>([&] { ReadTransformerConfig(path); }, {"config.json"});
  }
};

TEST_F(JsonFileTest, ReadsATransformerConfig) {
  WriteFile("config.json", R"({"_class_name": "QwenImageTransformer2DModel", "num_layers": 4, "attention_head_dim": 24,
    "num_attention_heads": 4, "joint_attention_dim": 64, "axes_dims_rope": [4, 10, 10], "guidance_embeds": false,
    "something_new": [1]})");
  const TransformerConfig config = ReadTransformerConfig(folder_.string());
  EXPECT_EQ(config.num_layers, 4);
  EXPECT_EQ(config.width(), 96);
  EXPECT_EQ(config.joint_attention_dim, 64);
  EXPECT_THAT(config.axes_dims_rope, ElementsAre(4, 10, 10));
  EXPECT_EQ(config.in_channels, 64);  // absent: the published value
  EXPECT_EQ(config.out_channels, 16);
}

TEST_F(JsonFileTest, WritesWhatItReads) {
  TransformerConfig config;
  config.num_layers = 3;
  config.out_channels = 4;
  config.axes_dims_rope = {8, 60, 60};
  WriteTransformerConfig(Path("config.json"), config);
  const TransformerConfig read = ReadTransformerConfig(Path("config.json"));
  EXPECT_EQ(read.num_layers, 3);
  EXPECT_EQ(read.out_channels, 4);
  EXPECT_THAT(read.axes_dims_rope, ElementsAre(8, 60, 60));
  EXPECT_THAT(ReadFile(Path("config.json")), ::testing::HasSubstr("\"_class_name\": \"QwenImageTransformer2DModel\""));
}

TEST_F(JsonFileTest, RefusesConfigsThatDoNotFit) {
  ExpectRefused(R"({"_class_name": "FluxTransformer2DModel"})",
                {"\"FluxTransformer2DModel\"", "only \"QwenImageTransformer2DModel\""});
  ExpectRefused(R"({"num_layers": -3})", {"\"num_layers\" is -3", "from 1 to"});
  ExpectRefused(R"({"num_layers": "60"})", {"\"num_layers\" is \"60\"", "whole number"});
  ExpectRefused(R"({"num_layers": 1e30})", {"\"num_layers\""});
  ExpectRefused(R"({"num_layers": 18446744073709551615})", {"\"num_layers\" is 18446744073709551615"});
  ExpectRefused(R"({"axes_dims_rope": [16, 56]})", {"\"axes_dims_rope\" is [16,56]", "three even"});
  ExpectRefused(R"({"axes_dims_rope": [15, 57, 56]})", {"three even"});
  ExpectRefused(R"({"axes_dims_rope": [16, 56, 58]})", {"sums to 130", "\"attention_head_dim\", 128"});
  for (const std::string key : {"zero_cond_t", "use_additional_t_cond", "use_layer3d_rope", "guidance_embeds"}) {
    ExpectRefused("{\"" + key + "\": true}", {"\"" + key + "\" is true", "not supported"});
    ExpectRefused("{\"" + key + "\": 1}", {"\"" + key + "\" is 1", "true or false"});
  }
  ExpectRefused(R"({"_class_name": "QwenImage21Transformer2DModel"})", {"\"QwenImage21Transformer2DModel\""});
  ExpectRefused("{\"num_layers\": ", {"not JSON"});
  ExpectRefused("[1]", {"[1]", "JSON object"});
  std::filesystem::rename(Path("config.json"), Path("confg.json"));
  ExpectError<UserError>([&] { ReadTransformerConfig(folder_.string()); },
                         {"config.json: no such file", "did you mean", "confg.json"});
}

// The published config.json, with the key that nothing reads, and the least one.
TEST_F(JsonFileTest, DefaultsAreThePublishedModel) {
  const TransformerConfig published = ParseTransformerConfig(
      R"({"_class_name": "QwenImageTransformer2DModel", "_diffusers_version": "0.34.0", "attention_head_dim": 128,
      "axes_dims_rope": [16, 56, 56], "guidance_embeds": false, "in_channels": 64, "joint_attention_dim": 3584,
      "num_attention_heads": 24, "num_layers": 60, "out_channels": 16, "patch_size": 2, "pooled_projection_dim": 768})",
      "config.json");
  for (const TransformerConfig& config : {published, ParseTransformerConfig("{}", "config.json")}) {
    EXPECT_EQ(config.width(), 3072);
    EXPECT_EQ(config.num_layers, 60);
    EXPECT_EQ(config.joint_attention_dim, 3584);
    EXPECT_EQ(config.in_channels, 64);
    EXPECT_EQ(config.out_channels, 16);
    EXPECT_EQ(config.patch_size, 2);
    EXPECT_THAT(config.axes_dims_rope, ElementsAre(16, 56, 56));
  }
  EXPECT_EQ(ParseTransformerConfig(R"({"out_channels": null})", "").out_channels, 64);
}

TEST_F(JsonFileTest, ChecksTheModelIndex) {
  EXPECT_NO_THROW(CheckModelIndex(folder_.string()));  // none is there
  const auto refused = [&](const std::string& text, std::initializer_list<std::string> parts) {
    WriteFile("model_index.json", text);
    ExpectError<UserError>([&] { CheckModelIndex(folder_.string()); }, parts);
  };
  refused(R"({"_class_name": "QwenImage21Pipeline"})",
          {"model_index.json", "\"QwenImage21Pipeline\"", "only \"QwenImagePipeline\""});
  refused(R"({"_class_name": "QwenImageEditPlusPipeline"})", {"\"QwenImageEditPlusPipeline\""});
  refused(R"({"_class_name": "QwenImagePipeline", "transformer": ["diffusers", "FluxTransformer2DModel"]})",
          {"\"transformer\" is \"FluxTransformer2DModel\"", "only \"QwenImageTransformer2DModel\""});
  refused(R"({"_class_name": "QwenImagePipeline"})", {"\"transformer\" is null"});
  WriteFile("model_index.json",
            R"({"_class_name": "QwenImagePipeline", "transformer": ["diffusers", "QwenImageTransformer2DModel"]})");
  EXPECT_NO_THROW(CheckModelIndex(folder_.string()));
}

TEST_F(JsonFileTest, ReadsASchedulerConfig) {
  WriteFile("scheduler_config.json", R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "max_shift": 1.15,
    "max_image_seq_len": 4096, "shift_terminal": null, "time_shift_type": "exponential", "use_karras_sigmas": false})");
  const SchedulerConfig config = ReadSchedulerConfig(folder_.string());
  EXPECT_EQ(config.max_shift, 1.15);
  EXPECT_EQ(config.max_image_seq_len, 4096);
  EXPECT_EQ(config.shift_terminal, 0);
  EXPECT_EQ(config.base_shift, 0.5);
  EXPECT_TRUE(config.use_dynamic_shifting);

  const auto refused = [&](const std::string& text, std::initializer_list<std::string> parts) {
    const std::string path = WriteFile("s.json", text);
    ExpectError<UserError>([&] { ReadSchedulerConfig(path); }, parts);
  };
  refused(R"({"_class_name": "DDIMScheduler"})", {"\"DDIMScheduler\"", "FlowMatchEulerDiscreteScheduler"});
  refused(R"({"time_shift_type": "linear"})", {"\"time_shift_type\" is \"linear\""});
  refused(R"({"use_karras_sigmas": true})", {"\"use_karras_sigmas\" is true"});
  refused(R"({"shift": 0})", {"\"shift\" is 0", "greater than 0"});
  refused(R"({"shift_terminal": 1.5})", {"\"shift_terminal\" is 1.5"});
  refused(R"({"base_image_seq_len": 9000})", {"\"max_image_seq_len\" is 8192", "9000"});
}

TEST_F(JsonFileTest, ReadsAVaeConfig) {
  WriteFile("config.json", R"({"_class_name": "AutoencoderKLQwenImage", "base_dim": 8, "z_dim": 2, "attn_scales": [],
    "dim_mult": [1, 2, 4, 8], "latents_mean": [0.5, -1], "latents_std": [2, 3], "dropout": 0.0})");
  const VaeConfig config = ReadVaeConfig(folder_.string());
  EXPECT_EQ(config.base_dim, 8);
  EXPECT_EQ(config.z_dim, 2);
  EXPECT_EQ(config.num_res_blocks, 2);  // absent: the published value
  EXPECT_THAT(config.dim_mult, ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(config.latents_mean, ElementsAre(0.5f, -1.0f));
  EXPECT_THAT(config.latents_std, ElementsAre(2.0f, 3.0f));
  WriteFile("config.json", R"({"_class_name": "AutoencoderKLQwenImage"})");
  EXPECT_EQ(ReadVaeConfig(Path("config.json")).latents_std[15], 1.916f);

  const auto refused = [&](const std::string& settings, std::initializer_list<std::string> parts) {
    const std::string path = WriteFile("v.json", R"({"_class_name": "AutoencoderKLQwenImage", )" + settings + "}");
    ExpectError<UserError>([&] { ReadVaeConfig(path); }, parts);
    ExpectError<UserError>([&] { ReadVaeConfig(path); }, {"v.json"});
  };
  refused(R"("base_dim": 0)", {"\"base_dim\" is 0", "from 1 to"});
  refused(R"("input_channels": 4)", {"\"input_channels\" is 4", "only 3"});
  refused(R"("dim_mult": [1, 2, 4])", {"\"dim_mult\" is [1,2,4]", "four whole numbers"});
  refused(R"("dim_mult": [1, 2, -4, 4])", {"\"dim_mult\"", "four whole numbers"});
  refused(R"("base_dim": 3, "dim_mult": [1, 1, 2, 2])", {"3 times \"dim_mult\" 1 is odd"});
  refused(R"("z_dim": 4)", {"\"latents_mean\" is absent", "4 numbers"});
  refused(R"("latents_std": [1, 2])", {"\"latents_std\" is [1,2]", "16 numbers", "\"z_dim\""});
  refused(R"("z_dim": 1, "latents_mean": ["a"], "latents_std": [1])", {"\"latents_mean\" is [\"a\"]"});
  const std::string path = WriteFile("v.json", R"({"_class_name": "AutoencoderKL"})");
  ExpectError<UserError>([&] { ReadVaeConfig(path); }, {"\"AutoencoderKL\"", "only \"AutoencoderKLQwenImage\""});
  WriteFile("v.json", "{}");
  ExpectError<UserError>([&] { ReadVaeConfig(path); }, {"no \"_class_name\"", "AutoencoderKLQwenImage"});
}

TEST_F(JsonFileTest, ReadsAVocabularyAndTokenizes) {
  WriteFile("vocabulary.json", R"({"words": ["<pad>", "a", "photo", "of", "red", "circle"], "text_len": 3,
    "prefix_dropped": 3, "pad": 0, "colors": ["red"]})");
  const Vocabulary vocabulary = ReadVocabulary(folder_.string());
  EXPECT_THAT(vocabulary.Tokenize("a photo of a red circle"), ElementsAre(1, 4, 5));
  EXPECT_THAT(vocabulary.Tokenize("a photo  of circle "), ElementsAre(5, 0, 0));
  ExpectError<UserError>([&] { vocabulary.Tokenize("a photo of a circel"); },
                         {"\"a photo of a circel\"", "the word \"circel\"", "did you mean \"circle\"?"});
  ExpectError<UserError>([&] { vocabulary.Tokenize("a photo of a red red circle"); }, {"has 7 words", "takes 4 to 6"});
  ExpectError<UserError>([&] { vocabulary.Tokenize("a photo of"); }, {"has 3 words"});

  const std::string path = WriteFile("v.json", R"({"words": ["a", 3]})");
  ExpectError<UserError>([&] { ReadVocabulary(path); }, {"word 1 is 3", "string"});
  WriteFile("v.json", R"({"words": ["a"], "pad": 1})");
  ExpectError<UserError>([&] { ReadVocabulary(path); }, {"\"pad\" is 1", "from 0 to 0"});
  WriteFile("v.json", R"({"word": ["a"]})");
  ExpectError<UserError>([&] { ReadVocabulary(path); }, {"\"words\" must be a list"});
}

}  // namespace
}  // namespace spotlight
