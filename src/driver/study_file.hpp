// study_ranks.h5: every number of `spotlight study ranks`, self-describing as run.h5 is.
//
//   /                                attributes: provenance, input (the settings), weight_version, kept
//   /setting, /prompt, /seed         int64 dimension scales
//   /rewards                         float64 [setting, prompt, seed]; setting 0 is the reference
//   /noise_seed                      uint64 [setting, seed]: names of the noise streams
//   /name, /lag, ...                 [setting] what each one is, and the time of a seed
//   /spearman, ...                   float64 [setting, prompt]; /spearman_mean, _low, _high float64 [setting]
//   /spread_random, /spread_best     float64 [prompt]
//   /prompt_id, /prompt_index, ...   [prompt]
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/prompt.hpp"
#include "plan/rank_agreement.hpp"

namespace spotlight {

// One way to explore, and what came of it.
struct StudySetting {
  std::string name;  // "current", "2 old", ...
  int lag = 0;       // versions that the weights are older than the reference's
  std::uint64_t weight_version = 0;
  int real_steps = 0;                // computed denoising steps; the others reuse them
  std::vector<std::uint64_t> seeds;  // noise streams, the same for all prompts
  SeedRewards rewards;
  double seconds = 0;  // of one seed: denoising, decoding, judging; median over batches
  RankAgreement agreement;
};

struct RankStudy {
  std::vector<Prompt> prompts;
  std::vector<int> prompt_indices;                 // in the run's training prompts
  int kept = 0;                                    // k, seeds that are chosen of each prompt
  std::vector<StudySetting> settings;              // the first one is the reference
  std::vector<double> random_spread, best_spread;  // [prompts]
};

// Replaces the file as a whole. `attributes`: of the root. FileError.
void WriteStudy(const std::string& path, const RankStudy& study, const std::map<std::string, std::string>& attributes);

}  // namespace spotlight
