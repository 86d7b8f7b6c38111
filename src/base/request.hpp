// What is queued and what comes back: a request is one (kind, prompt, seed) to denoise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/image.hpp"
#include "base/step_coefficients.hpp"

namespace spotlight {

enum class RequestKind : std::uint8_t {
  kRollout = 0,   // trained on: window latents and log-probs come back
  kExplore = 1,   // only its reward is wanted, to rank seeds
  kEvaluate = 2,  // held-out prompt, ODE, evaluation weights
};

struct Request {
  std::uint64_t id = 0;  // unique in the run
  RequestKind kind = RequestKind::kRollout;
  std::uint32_t iteration = 0;       // whose groups it belongs to
  std::uint32_t prompt_index = 0;    // in the training or (kEvaluate) evaluation prompt list
  std::uint64_t seed = 0;            // names one whole noise stream of the prompt
  std::uint64_t weight_version = 0;  // weights to denoise with
  std::uint32_t window_begin = 0;    // SDE window [begin, end): the steps that are stochastic and trained
  std::uint32_t window_end = 0;
  std::uint32_t real_steps = 0;  // kExplore: forwards of the network, other steps reuse them; 0: all
  bool keep_image = false;       // the image itself is wanted too
  std::uint32_t epoch = 0;       // of the lease it was handed out with; an answer with an older one is refused
};

// How far a request has come: all that another worker needs to go on with it, and to end with the same bits.
struct DenoiseState {
  std::uint32_t steps = 0;     // denoising steps done
  std::vector<float> latents;  // [S, C] after them
  std::vector<float>
      trajectory;                // of the SDE window: [steps done in it (+ 1 once it is over), S, C], as Sample.latents
  std::vector<float> log_probs;  // [steps done in the window]
};

// What a batch took on the ranks that denoised it together.
struct BatchTimes {
  std::uint32_t degree = 1;    // so many ranks
  std::uint32_t requests = 0;  // of the batch
  // Passes of the whole batch: with all of the network, and with what a pass before has left of it.
  std::uint32_t real_passes = 0, cached_passes = 0;
  double real_seconds = 0, cached_seconds = 0;
  double decode_seconds = 0, reward_seconds = 0;  // of all its images
};

// One denoised and scored request.
struct Sample {
  Request request;
  std::uint32_t rank = 0;        // who computed it
  double reward = 0;             // weighted sum of `terms`
  std::vector<double> terms;     // one score per reward term, in the order of the input; NaN: not scored
  std::vector<float> latents;    // kRollout: [window + 1, S, C] latents before each window step and after the last
  std::vector<float> log_probs;  // kRollout: [window], mean over elements, of latents[i + 1] given latents[i]
  std::vector<StepCoefficients> steps;  // kRollout: [window], what they were scored with
  Image image;                          // empty unless keep_image
};

}  // namespace spotlight
