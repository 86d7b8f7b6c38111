// The resolved input, --describe and the comparison of two inputs.
#include "config/dump.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/input.hpp"
#include "user_error.hpp"

namespace spotlight {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Dump, IsReadBackExactly) {
  Config config = ReadInputText(
      "[train]\nlr = 0.1234567890123456789\n[sampler]\nnegative_prompt = \" ; \"\nnoise = cps\n[lora]\ntargets =\n"
      "[prompts]\ntag_weights = counting:2, colors:0.1\n[notes]\nwho = \"a # b\"\n",
      "a.ini", {"run/seed=18446744073709551615"});
  config.run.directory = std::string(400, 'd');  // longer than some INI readers' line
  const Config again = ReadInputText(DumpConfig(config), "input.resolved.ini", {});
  EXPECT_TRUE(CompareConfigs(config, again).empty());
  EXPECT_EQ(again.train.lr, config.train.lr);
  EXPECT_EQ(again.notes, config.notes);
  EXPECT_EQ(again.run.seed, ~std::uint64_t{0});
  EXPECT_EQ(again.run.directory, config.run.directory);
  EXPECT_TRUE(again.lora.targets.empty());
}

TEST(Dump, NamesTheSourceOfEachValue) {
  const std::string text = DumpConfig(ReadInputText("[train]\nlr = 1e-3\n", "a.ini", {"train/updates=2"}));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nlr = 0\\.001 +# a\\.ini:2\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nupdates = 2 +# command line\n"));
  EXPECT_THAT(text, ::testing::ContainsRegex("\nmicro_batch = 64 +# default\n"));
}

TEST(Describe, ShowsOneSectionOrAll) {
  const std::string train = DescribeSection("train");
  EXPECT_THAT(train, ::testing::ContainsRegex("\nupdates = 4 +# 1 \\.\\. 1000000; .*\\*\n"));
  EXPECT_THAT(train, ::testing::ContainsRegex("\nadvantage_std = group +# group \\| global; "));
  EXPECT_THAT(train, Not(HasSubstr("[run]")));
  EXPECT_EQ(DescribeSection("train/lr"), train);
  EXPECT_THAT(DescribeSection(""), AllOf(HasSubstr("[run]"), HasSubstr("[pretrain]"), HasSubstr("[notes]")));
  EXPECT_THAT(UserErrorOf([] { DescribeSection("trian"); }),
              AllOf(HasSubstr("--describe trian"), HasSubstr("did you mean train?")));
}

// What is shown is itself an input, that of the defaults.
TEST(Describe, IsAnInput) {
  EXPECT_TRUE(CompareConfigs(Config{}, ReadInputText(DescribeSection(""), "described", {})).empty());
}

TEST(Compare, TellsWhatAResumedRunMayChange) {
  const Config first;
  Config second;
  second.run.iterations = 200;
  second.train.lr = 1e-3;
  second.sources["train/updates"] = "elsewhere";
  const std::vector<Difference> differences = CompareConfigs(first, second);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].key, "run/iterations");
  EXPECT_EQ(differences[0].first, "100");
  EXPECT_EQ(differences[0].second, "200");
  EXPECT_EQ(differences[0].on_resume, OnResume::kMayChange);
  EXPECT_EQ(differences[1].key, "train/lr");
  EXPECT_EQ(differences[1].on_resume, OnResume::kFixedOnResume);
}

}  // namespace
}  // namespace spotlight
