// The input file's grammar, precedence, sources, paths, and the message of each mistake.
#include "config/input.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "config/ini.hpp"
#include "user_error.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Config Read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return ReadInputText(text, "inputs/geneval.ini", overrides);
}

std::string ErrorOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return UserErrorOf([&] { Read(text, overrides); });
}

TEST(Input, DefaultsThenFileThenCommandLine) {
  const Config config = Read("[train]\nlr = 1e-3\nupdates = 2\n", {"train/lr=5e-4", "run/seed=7", "train/lr=6e-4"});
  EXPECT_EQ(config.train.micro_batch, 64);
  EXPECT_EQ(config.train.updates, 2);
  EXPECT_EQ(config.train.lr, 6e-4);
  EXPECT_EQ(config.sources.count("train/micro_batch"), 0u);
  EXPECT_EQ(config.sources.at("train/updates"), "inputs/geneval.ini:3");
  EXPECT_EQ(config.sources.at("train/lr"), "command line");
  EXPECT_EQ(DescribeOverrides(config), "2 values overridden on the command line: run/seed, train/lr");
  EXPECT_EQ(DescribeOverrides(Read("")), "");
}

TEST(Input, CommentsQuotesAndBlanks) {
  const Config config = Read(
      "\xEF\xBB\xBF# first\n; second\n\n  [sampler]   # a comment\r\n"
      "\tsteps = 20   # default 10\r\n"
      "negative_prompt = \"dark # \\\"old\\\" \"  ; why\n"
      "[cost]\ncurrency = EUR#1 ; the hash belongs to it");
  EXPECT_EQ(config.sampler.steps, 20);
  EXPECT_EQ(config.sampler.negative_prompt, "dark # \"old\" ");
  EXPECT_EQ(config.cost.currency, "EUR#1");
  EXPECT_EQ(config.sources.at("sampler/steps"), "inputs/geneval.ini:5");
}

TEST(Input, ReadsSectionsAgain) {
  const Config config = Read("[train]\nlr=1e-3\n[run]\nseed=1\n[train]\nupdates=3\n");
  EXPECT_EQ(config.train.lr, 1e-3);
  EXPECT_EQ(config.train.updates, 3);
}

TEST(Input, KeepsNotes) {
  const Config config = Read("[notes]\nauthor = A. N. Other  # who\n", {"notes/why=a = b # c"});
  EXPECT_EQ(config.notes.at("author"), "A. N. Other");
  EXPECT_EQ(config.notes.at("why"), "a = b # c");
}

TEST(Input, NotesFitIntoAnInputFile) {
  EXPECT_EQ(ErrorOf("", {"notes/why=a\nb"}), "command line: notes/why = a\nb: the text is to be one line");
  for (const std::string key : {"[why", "#why", ";why", "w\nhy", "\twhy"}) {
    EXPECT_THAT(ErrorOf("", {"notes/" + key + "=b"}), HasSubstr("the key is to be one word")) << key;
  }
}

TEST(Input, UnknownNames) {
  EXPECT_EQ(ErrorOf("[train]\n\nlrate = 3e-4\n"),
            "inputs/geneval.ini:3: unknown key train/lrate = 3e-4; did you mean train/lr? "
            "(spotlight --describe train lists the keys)");
  EXPECT_THAT(ErrorOf("[run]\nlr = 1\n"), HasSubstr("did you mean train/lr?")) << "the key of another section";
  EXPECT_THAT(ErrorOf("[tran]\nlr = 1\n"),
              AllOf(HasSubstr("inputs/geneval.ini:2: unknown section [tran]"), HasSubstr("did you mean [train]?")));
  EXPECT_THAT(ErrorOf("", {"train/updats=2"}),
              AllOf(HasSubstr("command line: unknown key"), HasSubstr("did you mean train/updates?")));
  EXPECT_THAT(ErrorOf("[train]\nxyzzyplugh = 1\n"), Not(HasSubstr("did you mean")));
}

TEST(Input, KeyGivenTwice) {
  EXPECT_THAT(ErrorOf("[train]\nlr = 1e-3\n[run]\n[train]\nlr = 2e-3\n"),
              AllOf(HasSubstr("inputs/geneval.ini:5: train/lr = 2e-3"), HasSubstr("line 2")));
}

TEST(Input, ValueNotAllowed) {
  EXPECT_EQ(ErrorOf("[sampler]\nsteps = 0\n"),
            "inputs/geneval.ini:2: sampler/steps = 0 is out of range; allowed: 1 .. 1000");
  EXPECT_THAT(ErrorOf("[sampler]\nnoise =\n"), HasSubstr("sampler/noise = (nothing) is not one of the names"));
  EXPECT_THAT(ErrorOf("", {"sampler/schedule=quen"}),
              AllOf(HasSubstr("command line: sampler/schedule = quen"), HasSubstr("did you mean qwen?"),
                    HasSubstr("allowed: linear | qwen")));
  EXPECT_THAT(ErrorOf("", {"run/time_limit=90"}), HasSubstr("allowed: hh:mm:ss"));
  EXPECT_THAT(ErrorOf("", {"run/directory=a\nb"}), HasSubstr("one line of text"));
}

TEST(Input, LinesThatAreNone) {
  EXPECT_THAT(ErrorOf("[train]\nlr 3e-4\n"), AllOf(HasSubstr("inputs/geneval.ini:2:"), HasSubstr("'lr 3e-4'")));
  EXPECT_THAT(ErrorOf("= 3\n"), HasSubstr("inputs/geneval.ini:1:"));
  EXPECT_THAT(ErrorOf("lr = 3e-4\n"), HasSubstr("before the first [section]"));
  EXPECT_THAT(ErrorOf("[train\nlr = 1\n"), HasSubstr("'[train' lacks its closing ]"));
  EXPECT_THAT(ErrorOf("[sampler]\nnegative_prompt = \"blurry\n"), HasSubstr("not closed"));
  EXPECT_THAT(ErrorOf("[sampler]\nnegative_prompt = \"a\" b\n"), HasSubstr("'b' follows the closing quote"));
}

TEST(Input, OverridesThatAreNone) {
  EXPECT_THAT(ErrorOf("", {"lr=3e-4"}), AllOf(HasSubstr("section/key=value"), HasSubstr("mean train/lr=3e-4?")));
  EXPECT_THAT(ErrorOf("", {"train.lr=3e-4"}), HasSubstr("did you mean train/lr=3e-4?"));
  EXPECT_THAT(ErrorOf("", {"train/lr"}), HasSubstr("did you mean train/lr=VALUE?"));
  EXPECT_THAT(ErrorOf("", {"="}), HasSubstr("such as train/lr=1e-4"));
}

TEST(Ini, QuotedValuesSurvive) {
  for (const std::string value : {"", " ", "a # b", "# b", "a;b", "a ; b", "\"", "say \"no\" # c", "back\\slash",
                                  " \\\" ", "tab\t# x", "plain words", "ends in blank "}) {
    const std::vector<IniEntry> entries = SplitIni("[a]\nkey = " + QuoteIniValue(value) + "  # comment\n", "x.ini");
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_EQ(entries[0].value, value);
  }
  EXPECT_EQ(QuoteIniValue("a;b \"c\""), "a;b \"c\"") << "quotes only where they are needed";
}

class InputFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::temp_directory_path() / (std::string("spotlight_input_") + test->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "inputs" / "some_model");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(root_ / name) << text;
    return (root_ / name).string();
  }

  std::filesystem::path root_;
};

TEST_F(InputFile, PathsAreFoundFromAnywhere) {
  Write("inputs/prompts.txt", "a photo\n");
  const std::string path = Write(
      "inputs/a.ini", "[model]\npath = inputs/some_model\n[prompts]\ntrain = inputs/prompts.txt\neval = nowhere.txt\n");
  const Config config = ReadInput(path, {});
  EXPECT_EQ(config.model.path, (root_ / "inputs/some_model").string());
  EXPECT_EQ(config.prompts.train, (root_ / "inputs/prompts.txt").string());
  EXPECT_EQ(config.prompts.eval, "nowhere.txt") << "as written: who opens it reports it";
  EXPECT_EQ(ReadInput(path, {"model/path=/"}).model.path, "/");
  std::filesystem::create_directories(root_ / "only_here");
  EXPECT_EQ(ReadInput(path, {"model/path=only_here/modle"}).model.path, (root_ / "only_here/modle").string())
      << "the folder that is there, for the message's near name";
}

TEST_F(InputFile, PathsAreFoundFromOneFolderHigher) {
  std::filesystem::create_directories(root_ / "inputs/baselines");
  Write("inputs/prompts.txt", "a photo\n");
  const std::string path = Write("inputs/baselines/a.ini",
                                 "[model]\npath = inputs/some_model\n[prompts]\ntrain = inputs/prompts.txt\neval = "
                                 "inputs/prompt.txt\n");
  const Config config = ReadInput(path, {});
  EXPECT_EQ(config.model.path, (root_ / "inputs/some_model").string());
  EXPECT_EQ(config.prompts.train, (root_ / "inputs/prompts.txt").string());
  EXPECT_EQ(config.prompts.eval, (root_ / "inputs/prompt.txt").string()) << "the folder that is there";
}

TEST_F(InputFile, WorkingDirectoryComesFirst) {
  const std::string path = Write("inputs/a.ini", "[model]\npath = .\n");
  EXPECT_EQ(ReadInput(path, {}).model.path, ".");
}

TEST_F(InputFile, MissingFileNamesTheNearest) {
  Write("inputs/geneval.ini", "");
  const std::string message = UserErrorOf([&] { ReadInput((root_ / "inputs/genval.ini").string(), {}); });
  EXPECT_THAT(message, AllOf(HasSubstr("no input file"), HasSubstr("genval.ini"),
                             HasSubstr("did you mean " + (root_ / "inputs/geneval.ini").string() + "?")));
  EXPECT_THAT(UserErrorOf([&] { ReadInput(root_.string(), {}); }), HasSubstr("is a folder"));
}

TEST_F(InputFile, MessagesNameTheFileAsGiven) {
  const std::string path = Write("inputs/a.ini", "[train]\nlr = fast\n");
  EXPECT_THAT(UserErrorOf([&] { ReadInput(path, {}); }),
              HasSubstr(path + ":2: train/lr = fast is not a finite number"));
}

}  // namespace
}  // namespace spotlight
