// The prompt lists that scripts/make_image_prompts.py writes, as the program reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/prompts.hpp"
#include "reward/reward.hpp"

namespace spotlight {
namespace {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

PromptList Read(const std::string& name) { return ReadPrompts(SPOTLIGHT_SOURCE_DIR "/inputs/prompts/" + name); }

// What the prompt asks for, the same for "a left of b" and "b right of a", "a and b" and "b and a".
std::string Asked(const Prompt& prompt) {
  std::vector<std::string> objects;
  for (const Clause& clause : prompt.include) {
    objects.push_back(clause.object_class + "/" + clause.color + "/" + std::to_string(clause.count));
  }
  const std::string relation = prompt.include.back().relation;
  std::string text = prompt.tag;
  if (relation.empty()) std::ranges::sort(objects);
  if (relation == "right of" || relation == "below") std::ranges::reverse(objects);
  if (!relation.empty()) text += relation == "left of" || relation == "right of" ? " beside" : " above";
  for (const std::string& object : objects) text += " " + object;
  return text;
}

TEST(ImagePromptLists, GenevalHasItsTasksAndNothingTwice) {
  std::set<std::string> asked;
  std::set<std::string> classes;
  std::map<std::string, int> tags;
  std::size_t prompts = 0;
  for (const std::string name : {"geneval_coco_eval.jsonl", "geneval_coco_train.jsonl"}) {
    const PromptList list = Read(name);
    for (const Prompt& prompt : list.prompts) {
      ++prompts;
      asked.insert(Asked(prompt));
      ++tags[prompt.tag];
      for (const Clause& clause : prompt.include) classes.insert(clause.object_class);
      for (const Clause& clause : prompt.exclude) EXPECT_EQ(clause.count, prompt.include[0].count + 1);
      EXPECT_EQ(prompt.exclude.size(), prompt.tag == "counting" ? 1U : 0U);
    }
    if (prompts != list.prompts.size()) continue;
    EXPECT_THAT(tags, UnorderedElementsAre(Pair("single_object", 80), Pair("two_object", 99), Pair("counting", 80),
                                           Pair("colors", 94), Pair("position", 100), Pair("color_attr", 100)));
  }
  EXPECT_EQ(asked.size(), prompts);
  EXPECT_EQ(classes.size(), 80U);
}

TEST(ImagePromptLists, AProgramCanJudgeThem) {
  RewardConfig config;
  config.terms = {{"command", 1}};
  config.command = "python3 scripts/rewards/ocr.py";
  for (const std::string name :
       {"ocr_train.txt", "ocr_eval.txt", "geneval_coco_train.jsonl", "geneval_coco_eval.jsonl"}) {
    EXPECT_NO_THROW(CheckReward(config, Read(name).prompts, name, false, "detector.safetensors"));
  }
}

}  // namespace
}  // namespace spotlight
