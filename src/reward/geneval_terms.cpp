// The GenEval scores as reward terms; geneval.hpp has the rule.
#include <algorithm>

#include "reward/geneval.hpp"
#include "reward/reward_term.hpp"

namespace spotlight {
namespace {

GenevalScores Scores(const RewardInput& input) { return ScoreGeneval(input.prompt, input.detections); }

double Mix(const RewardInput& input) {
  const GenevalScores scores = Scores(input);
  return (scores.strict + scores.soft) / 2;
}

// GenEval's verdict ignores extra objects outside counting, so a policy trained on it learns to draw more of
// everything, and counting gets worse. This is what extra objects cost, whatever they are.
double Tidy(const RewardInput& input) {
  int wanted = 0;
  for (const Clause& clause : input.prompt.include) wanted += clause.count;
  const int extra = static_cast<int>(input.detections.size()) - wanted;
  return std::clamp(1.0 - static_cast<double>(extra) / wanted, 0.0, 1.0);
}

RewardTerm Term(const char* name, const char* description, double (*score)(const RewardInput&)) {
  return {.name = name, .description = description, .needs_include = true, .needs_detector = true, .score = score};
}

}  // namespace

std::vector<RewardTerm> GenevalTerms() {
  return {
      Term("geneval_strict", "GenEval's verdict: 1 if all that the prompt asks for is there, else 0",
           [](const RewardInput& input) { return Scores(input).strict; }),
      Term("geneval_soft", "share of the prompt's conditions that hold, 0 to 1",
           [](const RewardInput& input) { return Scores(input).soft; }),
      Term("geneval_dense", "geneval_soft weighted by the detector's confidence, 0 to 1; fewer ties",
           [](const RewardInput& input) { return Scores(input).dense; }),
      Term("geneval_exact", "graded, 0 to 1; counts must be exact in every task, so extra objects cost",
           [](const RewardInput& input) { return Scores(input).exact; }),
      Term("geneval_mix", "(geneval_strict + geneval_soft) / 2", Mix),
      Term("geneval_tidy", "1 - extra objects / wanted objects, 0 to 1: what the image has beyond the prompt", Tidy),
  };
}

}  // namespace spotlight
