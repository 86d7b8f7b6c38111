#include "reward/reward_term.hpp"

namespace spotlight {

std::vector<RewardTerm> BrightnessTerms();
std::vector<RewardTerm> CommandTerms();
std::vector<RewardTerm> GenevalTerms();

const std::vector<RewardTerm>& RewardTerms() {
  static const std::vector<RewardTerm> terms = [] {
    std::vector<RewardTerm> all;
    for (const auto make : {GenevalTerms, CommandTerms, BrightnessTerms}) {
      for (RewardTerm& term : make()) all.push_back(term);
    }
    return all;
  }();
  return terms;
}

const RewardTerm* FindRewardTerm(const std::string& name) {
  for (const RewardTerm& term : RewardTerms()) {
    if (term.name == name) return &term;
  }
  return nullptr;
}

}  // namespace spotlight
