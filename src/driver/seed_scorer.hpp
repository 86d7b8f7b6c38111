// Denoises and scores the same seeds of the same training prompts again and again, in any setting of
// `spotlight study ranks`.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.hpp"
#include "driver/resources.hpp"
#include "driver/study_file.hpp"
#include "rollout/sampler.hpp"

namespace spotlight {

class SeedScorer {
 public:
  // study/prompts prompts are drawn as those of `iteration` are, and its SDE window is theirs. UserError if there are
  // fewer. resources must outlive this.
  SeedScorer(const Config& config, const Resources& resources, std::uint32_t iteration);

  const std::vector<int>& prompts() const { return drawn_; }  // indices into the training prompts

  // Fills in rewards [prompts][setting.seeds] and seconds, with the weights `parameters`. False: a signal came before
  // the end.
  bool Score(Parameters& parameters, StudySetting& setting);

 private:
  std::vector<Request> Requests(const StudySetting& setting) const;

  const Config config_;
  const Resources& resources_;
  const std::uint32_t iteration_;
  ConditionedPrompts prompts_;  // conditions of those drawn
  std::vector<int> drawn_;
  Sampler sampler_;
};

}  // namespace spotlight
