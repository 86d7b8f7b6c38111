// Denoises a batch of requests from their noise streams to packed latents.
//
// The noise of a step is a pure function of (run seed, prompt, seed, step, element), for evaluation without the run
// seed, and a sample's result does not depend on the batch: the same request gives the same bits on any rank.
#pragma once

#include <memory>
#include <vector>

#include "base/prompt.hpp"
#include "base/request.hpp"
#include "base/scheduler_config.hpp"
#include "config/config.hpp"
#include "model/guided_velocity.hpp"

namespace spotlight {

// The conditions of one prompt list, by prompt index.
struct ConditionedPrompts {
  std::vector<Prompt> prompts;
  std::vector<TextCondition> conditions;
};

// What a batch of requests leaves: final packed latents, and the window's trajectory.
struct Denoised {
  std::vector<float> latents;           // [S * C] final
  std::vector<float> trajectory;        // [window + 1, S * C] before each window step and after the last
  std::vector<float> log_probs;         // [window]
  std::vector<StepCoefficients> steps;  // [window]
};

class Sampler {
 public:
  Sampler(const Config& config, const SchedulerConfig& scheduler, const std::shared_ptr<const DitLayout>& layout,
          TextCondition negative);

  // requests: one kind and one SDE window. Evaluation requests are ODE with eval/steps.
  std::vector<Denoised> Denoise(const ParameterMemory& memory, const std::vector<Request>& requests,
                                const ConditionedPrompts& prompts);

  ImageShape image_shape() const { return image_shape_; }
  Index latent_size() const { return latent_size_; }  // S * C

 private:
  void DenoiseGroup(const ParameterMemory& memory, const std::vector<Request>& requests,
                    const std::vector<std::size_t>& members, const ConditionedPrompts& prompts,
                    std::vector<Denoised>& results);

  Config config_;
  SchedulerConfig scheduler_;
  GuidedVelocity velocity_;
  ImageShape image_shape_;
  Index latent_size_;
  Buffer x_, x_next_, v_, z_, log_prob_;
};

}  // namespace spotlight
