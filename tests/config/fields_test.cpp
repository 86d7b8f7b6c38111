// The field list as a whole, and each type of value at the ends of what it allows.
#include "config/fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/field_types.hpp"

namespace spotlight {
namespace {

using ::testing::HasSubstr;

constexpr OnResume kFixed = OnResume::kFixedOnResume;

TEST(FieldList, NamesEachKeyOnce) {
  Config config;
  std::set<std::string> names;
  for (const Section& section : FieldList(config)) {
    EXPECT_FALSE(section.fields.empty()) << section.name;
    for (const Field& field : section.fields) {
      EXPECT_TRUE(names.insert(section.name + "/" + field.key).second) << section.name << "/" << field.key;
      EXPECT_FALSE(field.help.empty()) << field.key;
    }
  }
}

// Two keys bound to one member, or a default out of its range, would show here.
TEST(FieldList, DefaultsAreAllowedAndMembersAreDistinct) {
  Config config;
  std::vector<Section> sections = FieldList(config);
  for (Section& section : sections) {
    for (Field& field : section.fields) EXPECT_EQ(field.set(field.get()), "") << section.name << "/" << field.key;
  }
  for (Section& section : sections) {
    for (Field& field : section.fields) {
      Config fresh;
      std::vector<Section> others = FieldList(fresh);
      const std::string before = field.get();
      for (const char* value :
           {"31",  "32",   "0.25",   "bf16", "cuda", "qwen",  "dance", "fixed", "critical", "halves",
            "tea", "pool", "global", "off",  "true", "false", "to_k",  "a:2",   "01:00:00", "1, 2, 3, 4, 5"}) {
        if (field.get() == before) field.set(value);
      }
      ASSERT_NE(field.get(), before) << section.name << "/" << field.key;
      int differing = 0;
      for (std::size_t s = 0; s < sections.size(); ++s) {
        for (std::size_t f = 0; f < sections[s].fields.size(); ++f) {
          differing += sections[s].fields[f].get() != others[s].fields[f].get() ? 1 : 0;
        }
      }
      EXPECT_EQ(differing, 1) << section.name << "/" << field.key;
      field.set(before);
    }
  }
}

// Keys of a model that does not fit into a toy's settings: their names, values and ends.
TEST(FieldList, KeysOfTheWholeModel) {
  Config config;
  const auto set = [&](const std::string& section_name, const std::string& key, const std::string& value) {
    for (Section& section : FieldList(config)) {
      for (Field& field : section.fields) {
        if (section.name == section_name && field.key == key) return field.set(value);
      }
    }
    return "no key " + key;
  };
  EXPECT_EQ(set("model", "precision", "bf16"), "");
  EXPECT_EQ(config.model.precision, ModelConfig::Precision::kBf16);
  EXPECT_THAT(set("model", "precision", "fp16"), HasSubstr("did you mean fp32?"));
  EXPECT_EQ(config.model.precision, ModelConfig::Precision::kBf16) << "a refused value must not change it";
  EXPECT_EQ(config.model.ActivationType(), ElementType::kFp32);
  EXPECT_EQ(set("model", "activations", "bf16"), "");
  EXPECT_EQ(config.model.activations, ModelConfig::Activations::kBf16);
  EXPECT_EQ(config.model.ActivationType(), ElementType::kBf16);
  EXPECT_EQ(set("model", "adapter", "run/x/final/lora"), "");
  EXPECT_EQ(config.model.adapter, "run/x/final/lora");
  EXPECT_EQ(set("prompts", "embeddings", "e.safetensors"), "");
  EXPECT_EQ(config.prompts.embeddings, "e.safetensors");
  EXPECT_EQ(set("train", "shard_weights", "true"), "");
  EXPECT_TRUE(config.train.shard_weights);
  EXPECT_EQ(set("ranks", "trainer_sp", "2"), "");
  EXPECT_EQ(config.ranks.trainer_sp, 2);
  EXPECT_EQ(set("ranks", "explorer_sp", "24"), "");
  EXPECT_EQ(config.ranks.explorer_sp, 24);
  EXPECT_THAT(set("ranks", "explorer_sp", "0"), HasSubstr("out of range"));
  EXPECT_EQ(set("reward", "command", "python3 judge.py --size 3"), "");
  EXPECT_EQ(config.reward.command, "python3 judge.py --size 3");
  EXPECT_EQ(set("reward", "command_timeout", "86400"), "");
  EXPECT_EQ(config.reward.command_timeout, 86400);
  EXPECT_THAT(set("reward", "command_timeout", "86401"), HasSubstr("out of range"));
}

// The paths are looked up beside the input; a command is not a path.
TEST(FieldList, PathsOfTheWholeModel) {
  Config config;
  std::set<std::string> paths;
  for (const Section& section : FieldList(config)) {
    for (const Field& field : section.fields) {
      if (field.is_path) paths.insert(section.name + "/" + field.key);
    }
  }
  EXPECT_EQ(paths, (std::set<std::string>{"model/path", "model/adapter", "prompts/train", "prompts/eval",
                                          "prompts/embeddings", "explore/replay", "reward/detector", "spot/trace"}));
}

TEST(FieldTypes, WholeNumbers) {
  int value = 1;
  const Field field = Whole("steps", value, Between(1, 1000), kFixed, "help");
  EXPECT_EQ(field.allowed, "1 .. 1000");
  EXPECT_EQ(field.set("1000"), "");
  EXPECT_EQ(value, 1000);
  EXPECT_THAT(field.set("1001"), HasSubstr("out of range"));
  EXPECT_THAT(field.set("0"), HasSubstr("out of range"));
  for (const char* text : {"", "ten", "1.5", "1e2", "12x", "99999999999"}) {
    EXPECT_THAT(field.set(text), HasSubstr("not a whole number")) << text;
  }
  EXPECT_EQ(value, 1000) << "a refused text must not change the member";
}

TEST(FieldTypes, MultiplesOfSixteen) {
  int value = 64;
  const Field field = Whole("height", value, Between(16, 4096), kFixed, "help", 16);
  EXPECT_EQ(field.set("48"), "");
  EXPECT_THAT(field.set("50"), HasSubstr("not a multiple of 16"));
  EXPECT_EQ(field.allowed, "16 .. 4096, a multiple of 16");
}

TEST(FieldTypes, SeedsUseAll64Bits) {
  std::uint64_t value = 0;
  const Field field = Whole64("seed", value, kFixed, "help");
  EXPECT_EQ(field.set("18446744073709551615"), "");
  EXPECT_EQ(value, ~std::uint64_t{0});
  EXPECT_EQ(field.get(), "18446744073709551615");
  EXPECT_NE(field.set("18446744073709551616"), "");
  EXPECT_NE(field.set("-1"), "");
}

TEST(FieldTypes, RealNumbersAreRestoredExactly) {
  double value = 0;
  const Field field = Real("lr", value, Above(0), kFixed, "help");
  for (const double expected : {0.1, 1.0 / 3, 1e-4, 3e-4, 5e-324, 1.7976931348623157e308}) {
    value = expected;
    const std::string text = field.get();
    value = 0;
    EXPECT_EQ(field.set(text), "") << text;
    EXPECT_EQ(value, expected);
  }
  EXPECT_THAT(field.set("0"), HasSubstr("out of range"));
  for (const char* text : {"nan", "inf", "", "1,5", "fast"}) EXPECT_THAT(field.set(text), HasSubstr("finite number"));
}

TEST(FieldTypes, RangesSayWhatTheyHold) {
  EXPECT_EQ(AtLeast(0).Text(), ">= 0");
  EXPECT_EQ(Above(0).Text(), "> 0");
  EXPECT_EQ(Between(0, 1).Text(), "0 .. 1");
  EXPECT_EQ(BelowOne().Text(), "0 <= x < 1");
  EXPECT_TRUE(BelowOne().Contains(0));
  EXPECT_FALSE(BelowOne().Contains(1));
  EXPECT_FALSE(Above(0).Contains(0));
  EXPECT_TRUE(Between(0, 1).Contains(1));
}

TEST(FieldTypes, ChoicesAndFlags) {
  auto noise = SamplerConfig::Noise::kFlow;
  const Field choice = Choice("noise", noise, {"flow", "dance", "cps"}, kFixed, "help");
  EXPECT_EQ(choice.set("cps"), "");
  EXPECT_EQ(noise, SamplerConfig::Noise::kCps);
  EXPECT_EQ(choice.get(), "cps");
  EXPECT_THAT(choice.set("dans"), HasSubstr("did you mean dance?"));
  bool flag = false;
  const Field field = Flag("recompute", flag, kFixed, "help");
  EXPECT_EQ(field.set("true"), "");
  EXPECT_TRUE(flag);
  EXPECT_EQ(field.allowed, "false | true");
  EXPECT_NE(field.set("1"), "");
}

TEST(FieldTypes, Lists) {
  std::vector<std::string> names;
  const Field list = NameList("targets", names, {"to_q", "to_k"}, kFixed, "help");
  EXPECT_EQ(list.set("to_k,  to_q"), "");
  EXPECT_THAT(names, ::testing::ElementsAre("to_k", "to_q"));
  EXPECT_EQ(list.get(), "to_k, to_q");
  EXPECT_THAT(list.set("to_v"), HasSubstr("'to_v'"));
  EXPECT_THAT(list.set("to_q, to_q"), HasSubstr("twice"));
  EXPECT_NE(list.set("to_q,,to_k"), "");
  EXPECT_EQ(list.set(""), "");
  EXPECT_TRUE(names.empty());
}

TEST(FieldTypes, WeightedLists) {
  std::vector<WeightedName> weights;
  const Field list = WeightList("terms", weights, AtLeast(0), kFixed, "help");
  EXPECT_EQ(list.set("geneval:0.5, exec:scorer: 2"), "");
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_EQ(weights[1].name, "exec:scorer");
  EXPECT_EQ(weights[1].weight, 2);
  EXPECT_EQ(list.get(), "geneval:0.5, exec:scorer:2");
  EXPECT_THAT(list.set("geneval"), HasSubstr("name:weight"));
  EXPECT_THAT(list.set(":1"), HasSubstr("name:weight"));
  EXPECT_THAT(list.set("a:x"), HasSubstr("name:weight"));
  EXPECT_THAT(list.set("a:-1"), HasSubstr("out of range"));
  EXPECT_THAT(list.set("a:nan"), HasSubstr("out of range"));
  EXPECT_THAT(list.set("a:1,a:2"), HasSubstr("a twice"));
}

TEST(FieldTypes, ListsOfSoManyNumbers) {
  std::vector<double> numbers;
  const Field list = NumberList("polynomial", numbers, 3, kFixed, "help");
  EXPECT_EQ(list.set("-450, 2.5,1e-3"), "");
  EXPECT_EQ(numbers, (std::vector<double>{-450, 2.5, 1e-3}));
  EXPECT_EQ(list.get(), "-450, 2.5, 0.001");
  EXPECT_EQ(list.set(list.get()), "");
  EXPECT_THAT(list.set("1, 2"), HasSubstr("has 2 numbers"));
  EXPECT_THAT(list.set("1, 2, 3, 4"), HasSubstr("has 4 numbers"));
  EXPECT_THAT(list.set("1, x, 3"), HasSubstr("holds 'x'"));
  EXPECT_THAT(list.set("1, inf, 3"), HasSubstr("not a finite number"));
  EXPECT_EQ(numbers.size(), 3U);
}

TEST(FieldTypes, Durations) {
  EXPECT_EQ(ParseDuration("00:00:07"), 7);
  EXPECT_EQ(ParseDuration("100:59:01"), 100 * 3600 + 59 * 60 + 1);
  for (const char* text : {"", "10", "10:00", "00:60:00", "00:00:60", "-1:00:00", "1:2:3:4", "a:b:c"}) {
    EXPECT_EQ(ParseDuration(text), -1) << text;
  }
  RunConfig run;
  EXPECT_EQ(run.TimeLimitSeconds(), 0);
  run.time_limit = "01:30:00";
  EXPECT_EQ(run.TimeLimitSeconds(), 5400);
}

TEST(LoraConfig, AlphaZeroStandsForTheRank) {
  LoraConfig lora;
  lora.rank = 8;
  EXPECT_EQ(lora.Scale(), 1);
  lora.alpha = 16;
  EXPECT_EQ(lora.Scale(), 2);
}

}  // namespace
}  // namespace spotlight
