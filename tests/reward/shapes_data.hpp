// The shipped tiny-shapes files, for the reward's tests.
#pragma once

#include <string>
#include <vector>

#include "base/prompt.hpp"
#include "io/prompts.hpp"
#include "io/safetensors.hpp"
#include "reward/shape_detector.hpp"

namespace spotlight {

inline const std::string kSourceDir = SPOTLIGHT_SOURCE_DIR;
inline const std::vector<std::string> kTasks = {"single_object", "two_object", "counting",
                                                "colors",        "position",   "color_attr"};

inline const ShapeDetector& ShippedDetector() {
  static const std::string path = kSourceDir + "/inputs/models/tiny-shapes/detector.safetensors";
  static const ShapeDetector detector(ReadSafetensors(path), path);
  return detector;
}

inline const std::vector<Prompt>& EvalPrompts() {
  static const std::vector<Prompt> prompts = ReadPrompts(kSourceDir + "/inputs/prompts/shapes_eval.jsonl").prompts;
  return prompts;
}

inline Clause Wants(const std::string& object_class, int count = 1, const std::string& color = "",
                    const std::string& relation = "", int target = -1) {
  return {object_class, count, color, relation, target};
}

// Training prompts of one task.
inline std::vector<Prompt> TaskPrompts(const std::string& tag) {
  static const std::vector<Prompt> all = ReadPrompts(kSourceDir + "/inputs/prompts/shapes_train.jsonl").prompts;
  std::vector<Prompt> prompts;
  for (const Prompt& prompt : all) {
    if (prompt.tag == tag) prompts.push_back(prompt);
  }
  return prompts;
}

}  // namespace spotlight
