// The reward of an image: the weighted mean of the terms that the input file names.
//
// A prompt with a `rewards` list is scored by those terms only. The others are NaN for it, never 0, and are left out of
// its weighted mean.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/image.hpp"
#include "base/prompt.hpp"
#include "config/config.hpp"
#include "reward/reward_term.hpp"
#include "reward/shape_detector.hpp"

namespace spotlight {

class CommandJudge;

struct RewardScore {
  double total = 0;
  std::vector<double> terms;  // in the order of RewardConfig::terms; NaN: does not score this prompt
};

class Reward {
 public:
  // `detector` may be absent if no term needs it. The arguments must have passed CheckReward (InternalError if not).
  // No program is started before the first image.
  Reward(const RewardConfig& config, std::optional<ShapeDetector> detector);
  ~Reward();

  // Deterministic, but for what the user's own program does; safe to call from several threads. `prompt` must have
  // passed CheckReward. Throws FileError if the program fails (command_term.hpp).
  RewardScore Score(const Prompt& prompt, const Image& image) const;

  // Column names of RewardScore::terms.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<const RewardTerm*> terms_;
  std::vector<std::string> names_;
  std::vector<double> weights_;
  std::optional<ShapeDetector> detector_;
  std::unique_ptr<CommandJudge> command_;  // null if no term needs it
};

// Refuses, with a UserError: unknown terms, terms named twice, weights that are negative, not finite or all 0; a
// missing detector (`detector_path` is named) or command that a term needs; a command that no term needs; and, as
// `prompts_path`:line, prompts that name terms which are not in the input or sum to weight 0, that lack the include
// list that a term needs, or that ask for a class or colour which the detector does not know. Call it once per prompt
// list.
void CheckReward(const RewardConfig& config, const std::vector<Prompt>& prompts, const std::string& prompts_path,
                 bool has_detector, const std::string& detector_path);

// Whether any term of the input needs the detector; false for unknown terms.
bool NeedsDetector(const RewardConfig& config);

// All terms with what they need, one a line, for `--list rewards`.
std::string DescribeRewards();

}  // namespace spotlight
