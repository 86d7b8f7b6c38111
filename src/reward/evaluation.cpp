#include "reward/evaluation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace spotlight {
namespace {

// Place of a term in Sample::terms, or -1.
int TermIndex(const std::vector<std::string>& terms, const std::string& name) {
  const auto found = std::find(terms.begin(), terms.end(), name);
  return found == terms.end() ? -1 : static_cast<int>(found - terms.begin());
}

struct Mean {
  double sum = 0, squares = 0;
  int n = 0;
  void Add(double value) {
    if (std::isnan(value)) return;
    sum += value;
    squares += value * value;
    ++n;
  }
  double mean() const { return n > 0 ? sum / n : std::numeric_limits<double>::quiet_NaN(); }
  double error() const {
    if (n < 2) return std::numeric_limits<double>::quiet_NaN();
    return std::sqrt(std::max(0.0, squares / n - mean() * mean()) / (n - 1));
  }
};

}  // namespace

std::vector<Request> EvaluationRequests(const Config& config, const std::vector<Prompt>& prompts,
                                        std::uint32_t iteration, int pictures) {
  const std::size_t count = prompts.size();
  const std::size_t shown = std::min(count, static_cast<std::size_t>(std::max(0, pictures)));
  std::vector<bool> keep(count, false);
  for (std::size_t i = 0; i < shown; ++i) keep[i * count / shown] = true;
  std::vector<Request> requests;
  for (std::size_t p = 0; p < count; ++p) {
    for (int seed = 0; seed < config.eval.seeds; ++seed) {
      requests.push_back({.kind = RequestKind::kEvaluate,
                          .iteration = iteration,
                          .prompt_index = static_cast<std::uint32_t>(p),
                          .seed = static_cast<std::uint64_t>(seed),
                          .weight_version = iteration,
                          .keep_image = keep[p] && seed == 0});
    }
  }
  return requests;
}

Evaluation SummarizeEvaluation(const std::vector<Sample>& samples, const std::vector<std::string>& terms,
                               const std::vector<Prompt>& prompts) {
  const int strict_term = TermIndex(terms, "geneval_strict"), soft_term = TermIndex(terms, "geneval_soft");
  const int tidy_term = TermIndex(terms, "geneval_tidy");
  Mean total, strict, soft, tidy;
  std::map<std::string, Mean> by_tag;
  Evaluation evaluation;
  for (const Sample& sample : samples) {
    total.Add(sample.reward);
    if (strict_term >= 0) {
      const double value = sample.terms[static_cast<std::size_t>(strict_term)];
      strict.Add(value);
      by_tag[prompts[sample.request.prompt_index].tag].Add(value);
    }
    if (soft_term >= 0) soft.Add(sample.terms[static_cast<std::size_t>(soft_term)]);
    if (tidy_term >= 0) tidy.Add(sample.terms[static_cast<std::size_t>(tidy_term)]);
    if (sample.request.keep_image) evaluation.pictures.push_back(sample);
  }
  evaluation.reward = total.mean();
  evaluation.strict = strict.mean();
  evaluation.strict_error = strict.error();
  evaluation.soft = soft.mean();
  evaluation.tidy = tidy.mean();
  evaluation.images = static_cast<int>(samples.size());
  for (const auto& [tag, mean] : by_tag) evaluation.strict_by_tag[tag] = mean.mean();
  return evaluation;
}

std::string DescribeScore(const Evaluation& evaluation) {
  if (std::isnan(evaluation.strict)) return fmt::format("reward {:.3f}", evaluation.reward);
  return fmt::format("{:.3f} +- {:.3f}", evaluation.strict, evaluation.strict_error);
}

}  // namespace spotlight
