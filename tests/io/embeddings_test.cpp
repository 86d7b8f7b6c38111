#include "io/embeddings.hpp"

#include <bit>
#include <cmath>

#include "base/error.hpp"
#include "io_test.hpp"
#include "safetensors_bytes.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;

const std::map<std::string, std::string> kMetadata = {
    {"format", "spotlight-embeddings"}, {"version", "1"}, {"encoder", "Qwen2.5-VL"}, {"max_length", "512"}};

class EmbeddingsTest : public IoTest {
 protected:
  std::string Write(const std::string& name, const WeightMap& tensors, const std::string& key = "",
                    const std::string& value = "") const {
    auto metadata = kMetadata;
    if (!key.empty()) metadata[key] = value;
    WriteSafetensors(Path(name), tensors, metadata);
    return Path(name);
  }
  void ExpectRefused(const std::string& path, std::initializer_list<std::string> parts) const {
    ExpectError<UserError>([&] { EmbeddingFile file(path); }, parts);
    ExpectError<UserError>([&] { EmbeddingFile file(path); }, {path});
  }
};

// The published test vectors of FNV-1a, so that scripts in other languages can repeat the keys.
TEST_F(EmbeddingsTest, KeysAreFnv1a) {
  EXPECT_EQ(EmbeddingKey(""), "cbf29ce484222325");
  EXPECT_EQ(EmbeddingKey("a"), "af63dc4c8601ec8c");
  EXPECT_EQ(EmbeddingKey("foobar"), "85944171f73967e8");
  EXPECT_EQ(EmbeddingKey("größer"), "eb97a69b2aa0dd78");
}

TEST_F(EmbeddingsTest, ReadsByTextFromBothTypes) {
  const EmbeddingFile file(Write("e.safetensors", {{EmbeddingKey("a cat"), {{2, 3}, {1, 2, 3, 4, 5, 6}}},
                                                   {EmbeddingKey(""), {{1, 3}, {7, 8, 9}}}}));
  EXPECT_EQ(file.size(), 2u);
  EXPECT_EQ(file.width(), 3);
  EXPECT_TRUE(file.Has(""));
  EXPECT_FALSE(file.Has("a dog"));
  EXPECT_EQ(file.Tokens("a cat"), 2);
  EXPECT_THAT(file.Read("a cat"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(file.Read(""), ElementsAre(7, 8, 9));
  ExpectError<UserError>([&] { file.Read("a dog"); }, {"e.safetensors", "\"a dog\"", EmbeddingKey("a dog")});

  const std::string header = R"({"__metadata__":{"format":"spotlight-embeddings","version":"1"},")" +
                             EmbeddingKey("x") + R"(":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})";
  const EmbeddingFile half(WriteFile("h.safetensors", WithHeader(header, Bytes<std::uint16_t>({0x3fc0, 0xc000}))));
  EXPECT_THAT(half.Read("x"), ElementsAre(1.5f, -2.0f));
}

TEST_F(EmbeddingsTest, ReadsAFolderOfParts) {
  std::filesystem::create_directory(Path("parts"));
  Write("parts/0.safetensors", {{EmbeddingKey("a"), {{1, 2}, {1, 2}}}});
  Write("parts/1.safetensors", {{EmbeddingKey("b"), {{1, 2}, {3, 4}}}, {EmbeddingKey("a"), {{1, 2}, {5, 6}}}});
  WriteFile("parts/.2.safetensors", "half written");
  WriteFile("parts/readme.txt", "text");
  const EmbeddingFile file(Path("parts"));
  EXPECT_EQ(file.size(), 2u);
  EXPECT_THAT(file.Read("a"), ElementsAre(1, 2));
  EXPECT_THAT(file.Read("b"), ElementsAre(3, 4));

  Write("parts/3.safetensors", {{EmbeddingKey("c"), {{1, 3}, {3, 4, 5}}}});
  ExpectRefused(Path("parts"), {"3.safetensors", "width 3", "before it 2"});
  Write("parts/3.safetensors", {{EmbeddingKey("c"), {{1, 2}, {3, 4}}}}, "encoder", "other");
  ExpectRefused(Path("parts"), {"3.safetensors", "\"encoder\" is \"other\"", "\"Qwen2.5-VL\" in", "0.safetensors"});
  std::filesystem::create_directory(Path("none"));
  ExpectRefused(Path("none"), {"no *.safetensors"});
}

TEST_F(EmbeddingsTest, RefusesOtherFiles) {
  const std::string key = EmbeddingKey("a");
  const HostTensor good = {{1, 2}, {1, 2}};
  ExpectRefused(Write("f.safetensors", {{key, good}}, "format", "pt"), {"format is \"pt\"", "spotlight-embeddings"});
  ExpectRefused(Write("f.safetensors", {{key, good}}, "version", "2"), {"version \"2\"", "version \"1\" is meant"});
  ExpectRefused(Write("f.safetensors", {}), {"holds no embedding"});
  ExpectRefused(Write("f.safetensors", {{"a", good}}), {"tensor \"a\"", "16 lower-case hexadecimal digits"});
  ExpectRefused(Write("f.safetensors", {{"CBF29CE484222325", good}}), {"16 lower-case hexadecimal digits"});
  ExpectRefused(Write("f.safetensors", {{key, {{2}, {1, 2}}}}), {"tensor " + key, "shape [2]", "[tokens, width]"});
  ExpectRefused(Write("f.safetensors", {{key, {{0, 2}, {}}}}), {"shape [0, 2]"});
  const std::string header = R"({"__metadata__":{"format":"spotlight-embeddings","version":"1"},")" + key +
                             R"(":{"dtype":"F16","shape":[1,1],"data_offsets":[0,2]}})";
  ExpectRefused(WriteFile("f.safetensors", WithHeader(header, "xx")), {"dtype F16", "BF16 and F32"});
  ExpectRefused(Path("g.safetensors"), {"no such file", "f.safetensors"});

  const EmbeddingFile file(Write("f.safetensors", {{key, {{1, 2}, {1, NAN}}}}));
  ExpectError<UserError>([&] { file.Read("a"); }, {"f.safetensors", key, "\"a\" is not finite", "element 1 of 2"});
}

TEST_F(EmbeddingsTest, NamesWhatIsMissingAndTheCommand) {
  const std::string path = Write("e.safetensors", {{EmbeddingKey("a"), {{1, 1}, {1}}}});
  const EmbeddingFile file(path);
  const std::vector<std::string> texts = {"a", "c", "b", "c"};
  EXPECT_THAT(file.Missing(texts), ElementsAre("c", "b"));
  ExpectError<UserError>([&] { file.RequireAll(texts, "prompts.txt"); },
                         {path, "2 of 4 prompts have no embedding", "first is \"c\"",
                          "scripts/encode_prompts.py --model MODEL --prompts prompts.txt --output " + path});
  EXPECT_NO_THROW(file.RequireAll(std::vector<std::string>{"a"}, "prompts.txt"));
}

}  // namespace
}  // namespace spotlight
