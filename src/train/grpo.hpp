// The clipped GRPO objective of one (sample, step) pair.
//
//   r = exp(log_prob - old_log_prob),   loss = max(-A r, -A clamp(r, 1 - eps, 1 + eps))
//
// (PPO's clip with group advantages; Flow-GRPO, arXiv 2505.05470.) Log-probabilities are means over the
// latent's elements, so typical eps are 1e-5 to 1e-4.
#pragma once

namespace spotlight {

struct PairLoss {
  double loss = 0;
  double ratio = 1;
  double dlog_prob = 0;  // d loss / d log_prob; 0 where the clip is active
  bool clipped = false;  // the clip took the gradient away
};

PairLoss ClippedObjective(double log_prob, double old_log_prob, double advantage, double clip_range);

}  // namespace spotlight
