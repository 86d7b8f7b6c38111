#include "io/prompts.hpp"

#include "base/error.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;

class PromptsTest : public IoTest {
 protected:
  // A mistake in line 2 is reported as file:2.
  void ExpectRefused(const std::string& line, std::initializer_list<std::string> parts) {
    const std::string path = WriteFile("bad.jsonl", "{\"prompt\": \"fine\"}\n" + line + "\n");
    ExpectError<UserError>([&] { ReadPrompts(path); }, parts);
    ExpectError<UserError>([&] { ReadPrompts(path); }, {path + ":2: "});
  }
};

TEST_F(PromptsTest, ReadsTextLines) {
  const std::string path = WriteFile("p.txt", "a dog\r\n\n  a cat  \na dog\n \nlast");
  const PromptList list = ReadPrompts(path);
  ASSERT_EQ(list.prompts.size(), 3u);
  EXPECT_EQ(list.prompts[0].text, "a dog");
  EXPECT_EQ(list.prompts[1].text, "a cat");
  EXPECT_EQ(list.prompts[1].line, 3);
  EXPECT_EQ(list.prompts[2].text, "last");
  EXPECT_EQ(list.prompts[2].id, PromptId("last"));
  EXPECT_EQ(list.blank_lines, 2);
  EXPECT_EQ(list.duplicates, 1);
  EXPECT_EQ(list.path, path);
}

TEST_F(PromptsTest, HashFollowsTheContent) {
  const std::string first = ReadPrompts(WriteFile("a.txt", "x\ny\n")).hash;
  EXPECT_EQ(first.size(), 16u);
  EXPECT_EQ(first, ReadPrompts(WriteFile("b.txt", "x\ny\n")).hash);
  EXPECT_NE(first, ReadPrompts(WriteFile("b.txt", "x\nz\n")).hash);
}

TEST_F(PromptsTest, ReadsGenevalLines) {
  const std::string path = WriteFile("p.jsonl", R"({"tag": "position", "include": [{"class": "teddy bear", "count": 1},
)");
  ExpectError<UserError>([&] { ReadPrompts(path); }, {path + ":1: not JSON"});
  WriteFile("p.jsonl",
            R"({"tag": "position", "include": [{"class": "dog", "count": 2, "color": null}, {"class": "cat", "color": )"
            R"("red", "position": ["left of", 0]}], "exclude": [{"class": "dog", "count": 3}], "prompt": "p1", )"
            R"("rewards": ["geneval", "ocr"]})"
            "\n"
            R"({"prompt": "p2"})");
  const PromptList list = ReadPrompts(path);
  ASSERT_EQ(list.prompts.size(), 2u);
  const Prompt& prompt = list.prompts[0];
  EXPECT_EQ(prompt.tag, "position");
  ASSERT_EQ(prompt.include.size(), 2u);
  EXPECT_EQ(prompt.include[0].object_class, "dog");
  EXPECT_EQ(prompt.include[0].count, 2);
  EXPECT_EQ(prompt.include[0].color, "");
  EXPECT_EQ(prompt.include[0].relation_target, -1);
  EXPECT_EQ(prompt.include[1].count, 1);
  EXPECT_EQ(prompt.include[1].color, "red");
  EXPECT_EQ(prompt.include[1].relation, "left of");
  EXPECT_EQ(prompt.include[1].relation_target, 0);
  ASSERT_EQ(prompt.exclude.size(), 1u);
  EXPECT_EQ(prompt.exclude[0].count, 3);
  EXPECT_THAT(prompt.rewards, ElementsAre("geneval", "ocr"));
  EXPECT_TRUE(list.prompts[1].include.empty());
}

TEST_F(PromptsTest, NamesFileAndLineOfEachMistake) {
  ExpectRefused("a photo of a dog", {"not JSON: a photo of a dog"});
  ExpectRefused("[1]", {"[1] is not a JSON object"});
  ExpectRefused(R"({"tag": "x"})", {"no \"prompt\""});
  ExpectRefused(R"({"prompt": 3})", {"\"prompt\" is 3", "string"});
  ExpectRefused(R"({"prompt": " "})", {"\"prompt\" is empty"});
  ExpectRefused(R"({"prompt": "p", "include": {}})", {"\"include\" is {}", "list"});
  ExpectRefused(R"({"prompt": "p", "include": ["dog"]})", {"include[0] is \"dog\"", "object"});
  ExpectRefused(R"({"prompt": "p", "include": [{"count": 1}]})", {"include[0]: no \"class\""});
  ExpectRefused(R"({"prompt": "p", "include": [{"class": "dog", "count": 0}]})", {"\"count\" is 0", "from 1"});
  ExpectRefused(R"({"prompt": "p", "exclude": [{"class": "dog", "count": "2"}]})",
                {"exclude[0]", "\"count\" is \"2\""});
  ExpectRefused(R"({"prompt": "p", "include": [{"class": "a", "position": ["left of", 0]}]})",
                {"include[0]", "position index 0 is out of range", "0 clauses before"});
  ExpectRefused(R"({"prompt": "p", "include": [{"class": "a"}, {"class": "b", "position": ["left of", -1]}]})",
                {"include[1]", "index -1 is out of range"});
  ExpectRefused(R"({"prompt": "p", "include": [{"class": "a"}, {"class": "b", "position": ["near", 0]}]})",
                {"relation \"near\"", "left of, right of, above, below"});
  ExpectRefused(R"({"prompt": "p", "include": [{"class": "a"}, {"class": "b", "position": "left of"}]})",
                {"\"position\" is \"left of\"", "[relation, index]"});
  ExpectRefused(R"({"prompt": "p", "rewards": [1]})", {"\"rewards\" holds 1"});
}

TEST_F(PromptsTest, RefusesFilesWithoutPrompts) {
  const std::string empty = WriteFile("empty.txt", "");
  ExpectError<UserError>([&] { ReadPrompts(empty); }, {empty, "no prompts"});
  const std::string blank = WriteFile("blank.txt", "\n \n");
  ExpectError<UserError>([&] { ReadPrompts(blank); }, {"no prompts"});
  WriteFile("geneval.jsonl", "{\"prompt\": \"p\"}");
  ExpectError<UserError>([&] { ReadPrompts(Path("genval.jsonl")); },
                         {"genval.jsonl: no such file", "did you mean", "geneval.jsonl"});
  ExpectError<UserError>([&] { ReadPrompts(Path("x/p.txt")); }, {"the folder", "does not exist"});
  ExpectError<UserError>([&] { ReadPrompts(Path("p.json")); }, {"\".json\"", ".jsonl"});
}

}  // namespace
}  // namespace spotlight
