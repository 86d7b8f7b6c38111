// Denoises a batch of requests from their noise streams to packed latents.
//
// The noise of a step is a pure function of (run seed, prompt, seed, step, element), for evaluation without the run
// seed, and a sample's result does not depend on the batch: the same request gives the same bits on any rank.
// Explored requests may do without the network's blocks at some steps (explore/cache, Request::real_steps;
// model/step_cache.hpp, rollout/skip_schedule.hpp); the noise and the scheduler run at all steps.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/prompt.hpp"
#include "base/request.hpp"
#include "base/scheduler_config.hpp"
#include "base/sequence_group.hpp"
#include "config/config.hpp"
#include "kernels/stream.hpp"
#include "model/guided_velocity.hpp"
#include "rollout/kept_steps.hpp"

namespace spotlight {

// One prompt list, and the conditions of its prompts, by prompt index; 0 tokens: the condition is not here (yet).
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

// Called between two steps of a batch, by every rank of the group; what it throws ends the batch. On a device the last
// step may still run: the host is one step ahead at most.
class StepBorder {
 public:
  virtual ~StepBorder() = default;
  // `steps` of the batch are done, more follow. states: where each request has got to, for who asks; they outlive the
  // batch. Null: nobody can go on from here, since the next step needs what the steps before have left in memory.
  virtual void At(int steps, BatchStates* states) = 0;
};

class Sampler {
 public:
  Sampler(const Config& config, const SchedulerConfig& scheduler, const std::shared_ptr<const DitLayout>& layout,
          TextCondition negative);

  // requests: at least one, of one kind, one SDE window and one number of real steps. Evaluation requests are ODE with
  // eval/steps. group: ranks that denoise the batch together, each with the same arguments; all of them get the
  // results. At a border it may get another communicator, but no other members. states: empty, or where each request
  // has got to, all after the same number of steps, as a border offered it; the result has the bits of a batch that was
  // never interrupted.
  std::vector<Denoised> Denoise(Parameters& parameters, const std::vector<Request>& requests,
                                const ConditionedPrompts& prompts, SequenceGroup* group = nullptr,
                                const std::vector<DenoiseState>& states = {}, StepBorder* border = nullptr);

  // Of the last Denoise: degree, requests, passes and their seconds. If it was cut, those that are known to have run.
  const BatchTimes& times() const { return times_; }
  const StepCache& cache() const { return cache_; }

  // Of a request, from noise to image.
  int StepsOf(RequestKind kind) const;

  // The text that guidance leads away from; needed before Denoise where there is guidance.
  void SetNegative(const TextCondition& negative) { velocity_.SetNegative(negative); }

  ImageShape image_shape() const { return image_shape_; }
  Index latent_size() const { return latent_size_; }  // S * C

 private:
  // The last passes, whose time is not known before they have run.
  struct TimedPass {
    std::unique_ptr<LaunchTimer> timer;
    bool under_way = false, cached = false;
  };

  void Pass(Parameters& parameters, const VelocityInput& input, TimedPass& pass);
  void AddTime(TimedPass& pass);

  Config config_;
  SchedulerConfig scheduler_;
  GuidedVelocity velocity_;
  ImageShape image_shape_;
  Index latent_size_;
  StepCache cache_;
  BatchTimes times_;
  std::array<TimedPass, 2> passes_;  // even and odd steps
  KeptSteps kept_;
  Buffer x_, x_next_, v_, z_, log_prob_;
};

}  // namespace spotlight
