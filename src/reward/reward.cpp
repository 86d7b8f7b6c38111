#include "reward/reward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "reward/command_term.hpp"

namespace spotlight {

Reward::Reward(const RewardConfig& config, std::optional<ShapeDetector> detector) : detector_(std::move(detector)) {
  for (const WeightedName& entry : config.terms) {
    const RewardTerm* term = FindRewardTerm(entry.name);
    SPOTLIGHT_REQUIRE(term != nullptr, entry.name);
    SPOTLIGHT_REQUIRE(detector_.has_value() || !term->needs_detector, entry.name + " has no detector");
    SPOTLIGHT_REQUIRE(!config.command.empty() || !term->needs_command, entry.name + " has no command");
    if (term->needs_command) {
      command_ = std::make_unique<CommandJudge>(config.command, std::chrono::seconds(config.command_timeout));
    }
    terms_.push_back(term);
    names_.push_back(entry.name);
    weights_.push_back(entry.weight);
  }
}

Reward::~Reward() = default;

RewardScore Reward::Score(const Prompt& prompt, const Image& image) const {
  std::vector<char> scored(terms_.size(), 1);
  bool detect = false;
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    scored[i] = prompt.rewards.empty() || std::ranges::find(prompt.rewards, names_[i]) != prompt.rewards.end();
    detect = detect || (scored[i] && terms_[i]->needs_detector);
  }
  const std::vector<Detection> detections = detect ? detector_->Detect(image) : std::vector<Detection>{};

  RewardScore result;
  double sum = 0;
  double weight = 0;
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    if (!scored[i]) {
      result.terms.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    result.terms.push_back(terms_[i]->score({prompt, image, detections, command_.get()}));
    sum += weights_[i] * result.terms.back();
    weight += weights_[i];
  }
  SPOTLIGHT_REQUIRE(weight > 0, "no reward term scores the prompt " + prompt.text);
  result.total = sum / weight;
  return result;
}

bool NeedsDetector(const RewardConfig& config) {
  return std::ranges::any_of(config.terms, [](const WeightedName& entry) {
    const RewardTerm* term = FindRewardTerm(entry.name);
    return term != nullptr && term->needs_detector;
  });
}

std::string DescribeRewards() {
  std::string text = "reward terms, for [reward] terms = name:weight, ...\n";
  for (const RewardTerm& term : RewardTerms()) {
    std::string needs;
    if (term.needs_include) needs += "prompts with GenEval's include list";
    if (term.needs_detector) needs += (needs.empty() ? "" : ", ") + std::string("detector.safetensors");
    if (term.needs_command) needs += (needs.empty() ? "" : ", ") + std::string("reward/command");
    text += fmt::format("  {:<16}{}\n", term.name, term.description);
    text += fmt::format("  {:<16}needs: {}\n", "", needs.empty() ? "nothing" : needs);
  }
  return text;
}

}  // namespace spotlight
