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
  ExpectRefused(R"({"zero_cond_t": true})", {"\"zero_cond_t\" is true", "not supported"});
  ExpectRefused("{\"num_layers\": ", {"not JSON"});
  ExpectRefused("[1]", {"[1]", "JSON object"});
  std::filesystem::rename(Path("config.json"), Path("confg.json"));
  ExpectError<UserError>([&] { ReadTransformerConfig(folder_.string()); },
                         {"config.json: no such file", "did you mean", "confg.json"});
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
