// Time of one RL iteration of inputs/geneval.ini by phase, beside scripts/bench/pytorch_iteration.py.
//
//   OMP_NUM_THREADS=2 bench_iteration [ITERATIONS]      from the repository's root; 10 iterations by default
//
// The same work as the script: P prompts x k images, no exploration, GRPO with its updates on the chosen pairs. The
// weights that training leaves are what the next iteration samples with. `reward` holds the decoding and, unlike the
// script's, the detector and the scoring.
// Prints {"benchmark": "iteration", "threads": n, "median_s": s, "min_s": s, "cpu_s": s, "peak_mib": m,
// "phases": {"rollout" | "reward" | "train": {"median_s": s, "min_s": s, "cpu_s": s}}}.
#include <cstdio>
#include <exception>

#include "comm/trainer_group.hpp"
#include "comm/world.hpp"
#include "config/input.hpp"
#include "driver/resources.hpp"
#include "kernels/runtime.hpp"
#include "model/model_weights.hpp"
#include "plan/advantage.hpp"
#include "plan/iteration_plan.hpp"
#include "plan/prompt_sampler.hpp"
#include "tests/bench/timing.hpp"
#include "train/trainer.hpp"

namespace spotlight {
namespace {

constexpr int kWarmUp = 2;

class Iterations {
 public:
  explicit Iterations(const Config& config)
      : config_(config),
        resources_(LoadResources(config)),
        prompt_sampler_(resources_.train.prompts, config.prompts.tag_weights, config.run.seed),
        weights_(resources_.model.layout, resources_.model.weights, Precision::kFp32, {}),
        sampler_(config, resources_.model.scheduler, resources_.model.layout, {}),
        train_(Condition(resources_.train, *resources_.text)),
        group_(world_),
        trainer_(config, resources_.model.layout, weights_, group_) {
    const DitLayout& layout = *resources_.model.layout;
    std::vector<float> base(static_cast<std::size_t>(layout.base().size()));
    layout.base().Load(*resources_.model.weights, base);
    trainer_.trained().SetState(TrainedWeights::InitialState(config, base));
    weights_.Put({0, false}, base);
  }

  struct Phases {
    Seconds rollout, reward, train, total;
  };

  Phases Run(std::uint32_t iteration) {
    const Seconds start = Now();
    const IterationPlan plan = PlanIteration(config_, prompt_sampler_, iteration);
    const std::vector<Request> requests = RolloutRequests(plan, iteration);
    std::vector<Denoised> denoised = sampler_.Denoise(weights_.Of({iteration, false}), requests, train_);
    const Seconds denoised_at = Now();
    std::vector<double> rewards;
    std::vector<int> groups;
    const ImageShape shape = sampler_.image_shape();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Image image = resources_.model.decoder->Decode(denoised[i].latents, shape.height, shape.width);
      const Prompt& prompt = resources_.train.prompts[requests[i].prompt_index];
      rewards.push_back(resources_.reward->Score(prompt, image).total);
      groups.push_back(static_cast<int>(i) / config_.group.images);
      // A group without spread is not trained on; a little spread of its own makes every pair count, as in the script.
      rewards.back() += 1e-3 * static_cast<double>(i % 3);
    }
    const Advantages advantages = GroupAdvantages(rewards, groups, config_.group.prompts, {});
    const Seconds scored_at = Now();
    std::vector<TrainSample> samples;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Sample sample{.request = requests[i]};
      sample.latents = std::move(denoised[i].trajectory);
      sample.log_probs = std::move(denoised[i].log_probs);
      sample.steps = std::move(denoised[i].steps);
      samples.push_back({std::move(sample), advantages.values[i]});
    }
    trainer_.Train(iteration, samples, train_.conditions);
    weights_.Put({iteration + std::uint64_t{1}, false}, trainer_.trained().Weights());
    const Seconds trained_at = Now();
    return {denoised_at - start, scored_at - denoised_at, trained_at - scored_at, trained_at - start};
  }

 private:
  const Config config_;
  const Resources resources_;
  const PromptSampler prompt_sampler_;
  World world_;  // one process
  ModelWeights weights_;
  Sampler sampler_;
  ConditionedPrompts train_;
  TrainerGroup group_;
  Trainer trainer_;
};

void Bench(int iterations) {
  Iterations work(ReadInput("inputs/geneval.ini", {"explore/seeds=0"}));
  std::vector<Seconds> rollout, reward, train, total;
  for (int i = 0; i < kWarmUp + iterations; ++i) {
    const Iterations::Phases phases = work.Run(static_cast<std::uint32_t>(i));
    if (i < kWarmUp) continue;
    rollout.push_back(phases.rollout);
    reward.push_back(phases.reward);
    train.push_back(phases.train);
    total.push_back(phases.total);
  }
  fmt::print(R"({{"benchmark": "iteration", "threads": {}, {}, "peak_mib": {:.1f}, )"
             R"("phases": {{"rollout": {{{}}}, "reward": {{{}}}, "train": {{{}}}}}}})"
             "\n",
             KernelThreads(), TimingFields(total), PeakMebibytes(), TimingFields(rollout), TimingFields(reward),
             TimingFields(train));
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  StartKernels(BenchThreads());
  int code = 0;
  try {
    Bench(CountArgument(argc, argv, 10));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_iteration: %s\n", error.what());
    code = 1;
  }
  StopKernels();
  return code;
}
