// Held-out evaluation: fixed prompts, fixed seeds, ODE, no selection.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/prompt.hpp"
#include "base/request.hpp"
#include "config/config.hpp"

namespace spotlight {

struct Evaluation {
  double reward = 0;
  double strict = 0, strict_error = 0;  // mean over images and its standard error; NaN without GenEval prompts
  double soft = 0;
  double tidy = 0;  // falls when the policy learns to draw more than it was asked for
  std::map<std::string, double> strict_by_tag;
  int images = 0;
  std::vector<Sample> pictures;  // those that were asked to be kept, in request order
};

// eval/seeds requests for each held-out prompt, in an iteration, with the evaluation weights that it starts with: those
// of the version of its number. `pictures` of them, spread evenly over the prompts, bring their image.
std::vector<Request> EvaluationRequests(const Config& config, const std::vector<Prompt>& prompts,
                                        std::uint32_t iteration, int pictures);

// `terms`: names of Sample::terms.
Evaluation SummarizeEvaluation(const std::vector<Sample>& samples, const std::vector<std::string>& terms,
                               const std::vector<Prompt>& prompts);

// "score 0.602 +- 0.031", or the reward where the prompts have no GenEval metadata.
std::string DescribeScore(const Evaluation& evaluation);

}  // namespace spotlight
