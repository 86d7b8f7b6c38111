// What a reward term is, and the list of all terms.
//
// To add one: a file here that defines `std::vector<RewardTerm> XxxTerms()`, its name in CMakeLists.txt, and a line in
// reward_terms.cpp.
#pragma once

#include <string>
#include <vector>

#include "base/image.hpp"
#include "base/prompt.hpp"
#include "reward/detection.hpp"

namespace spotlight {

class CommandJudge;

struct RewardInput {
  const Prompt& prompt;
  const Image& image;
  const std::vector<Detection>& detections;  // of `image`; empty for a term that does not need the detector
  CommandJudge* command = nullptr;           // null for a term that does not need it
};

struct RewardTerm {
  std::string name;                                     // as in [reward] terms of the input
  std::string description;                              // one line, with the range
  bool needs_include = false;                           // prompts must have GenEval's include list
  bool needs_detector = false;                          // detector.safetensors
  bool needs_command = false;                           // reward/command
  double (*score)(const RewardInput& input) = nullptr;  // finite; larger is better; may be called by several threads
};

// All terms, in the order in which they are listed for the user.
const std::vector<RewardTerm>& RewardTerms();

// The term of that name, or null.
const RewardTerm* FindRewardTerm(const std::string& name);

}  // namespace spotlight
