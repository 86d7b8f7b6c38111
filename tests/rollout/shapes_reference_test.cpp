// The shipped tiny model against the numbers of the program that trained it: velocities, latents,
// images and rewards of eight samples, number for number; the base's 256 rewards statistically.
#include <gtest/gtest.h>

#include "kernels/sde_step.hpp"
#include "model/guided_velocity.hpp"
#include "rollout/schedule.hpp"
#include "tests/model/golden.hpp"
#include "tests/rollout/shapes_model.hpp"

namespace spotlight {
namespace {

class ShapesReference : public ShapesModel {};

TEST_F(ShapesReference, EightSamplesNumberForNumber) {
  const SafetensorsFile file(SPOTLIGHT_TEST_DATA_DIR "/tiny-shapes/reference.safetensors");
  constexpr Index kBatch = 8;
  const Index n = 16 * 64;
  const ImageShape shape{1, 4, 4};
  const std::vector<float> token_ids = file.Read("token_ids").data;
  std::vector<TextCondition> conditions;
  VelocityInput input{.image_shape = shape, .level_index = std::vector<int>(kBatch, 0)};
  for (Index b = 0; b < kBatch; ++b) {
    const auto ids = token_ids.begin() + b * 7;
    conditions.push_back(Embed({ids, ids + 7}));
    EXPECT_EQ(conditions.back().embedding, prompts_.conditions[static_cast<std::size_t>(b)].embedding);
  }
  std::vector<const TextCondition*> texts;
  for (const TextCondition& condition : conditions) texts.push_back(&condition);
  GuidedVelocity velocity(layout_, 1.0, {}, false);
  FlatParameters parameters(*layout_, base_.data());
  velocity.SetTexts(parameters, texts, true);
  for (const std::string a : {"a0.0", "a0.7"}) {
    const HostTensor noise = file.Read(a + ".noise"), coefficients = file.Read(a + ".coefs");
    Buffer x(kBatch * n), v(kBatch * n), z(kBatch * n), next(kBatch * n);
    x.CopyFromHost(std::span<const float>(noise.data).subspan(0, static_cast<std::size_t>(kBatch * n)));
    std::vector<double> sigmas = LinearSigmas(static_cast<int>(coefficients.shape[0]));
    for (Index i = 0; i < coefficients.shape[0]; ++i) {
      const float* row = coefficients.data.data() + i * 4;  // t, c_x, c_v, std
      const double sigma = sigmas[static_cast<std::size_t>(i)], sigma_next = sigmas[static_cast<std::size_t>(i) + 1];
      const StepParameters step =
          a == "a0.0" ? OdeStep(sigma, sigma_next) : FlowSdeStep(sigma, sigma_next, sigmas[1], 0.7);
      EXPECT_NEAR(step.c_x, row[1], 2e-6);
      EXPECT_NEAR(step.c_v, row[2], 2e-6);
      EXPECT_NEAR(step.tau, row[3], 2e-6);
      input.latents = x.data();
      input.levels = {step.Rounded().sigma};
      velocity.Forward(parameters, input, false, v.data());
      if (i == 0) {
        std::vector<float> host(static_cast<std::size_t>(kBatch * n));
        v.CopyToHost(host);
        EXPECT_CLOSE(host, file.Read("v_t1").data, 1e-5, 3e-5, "velocity at t = 1");
      }
      const std::vector<StepCoefficients> steps(kBatch, step.Rounded());
      const bool stochastic = step.tau > 0;
      if (stochastic) {
        z.CopyFromHost(
            std::span<const float>(noise.data)
                .subspan(static_cast<std::size_t>((i + 1) * kBatch * n), static_cast<std::size_t>(kBatch * n)));
      }
      SdeStep(kBatch, n, steps.data(), x.data(), v.data(), stochastic ? z.data() : nullptr, next.data());
      std::swap(x, next);
    }
    std::vector<float> latents(static_cast<std::size_t>(kBatch * n));
    x.CopyToHost(latents);
    EXPECT_CLOSE(latents, file.Read(a + ".latent").data, 1e-4, 2e-4, a + " latents");
    const std::vector<float> images = file.Read(a + ".image").data, rewards = file.Read(a + ".rewards").data;
    const std::size_t pixels = images.size() / kBatch;
    for (std::size_t b = 0; b < kBatch; ++b) {
      const Image image = vae_.Decode(
          std::span<const float>(latents).subspan(b * static_cast<std::size_t>(n), static_cast<std::size_t>(n)), 4, 4);
      const std::vector<float> golden(images.begin() + static_cast<Index>(b * pixels),
                                      images.begin() + static_cast<Index>((b + 1) * pixels));
      EXPECT_CLOSE(image.rgb, golden, 1e-4, 5e-4, a + " image");
      const RewardScore score = reward_->Score(prompts_.prompts[b], image);
      for (std::size_t term = 0; term < 3; ++term) {
        EXPECT_NEAR(score.terms[term], rewards[b * 3 + term], term == 2 ? 1e-3 : 1e-6) << a << " sample " << b;
      }
    }
  }
}

TEST_F(ShapesReference, ARolloutThatWasInterruptedHasTheSameBits) {
  Config config;
  config.sampler.steps = 6;
  Sampler sampler(config, SchedulerConfig{}, layout_, {});
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  Parameters& parameters = model.Of({0, false});
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 3; ++i) {
    requests.push_back({.prompt_index = i, .seed = 7 + i, .window_begin = 2, .window_end = 4});
  }
  const std::vector<Denoised> whole = sampler.Denoise(parameters, requests, prompts_);
  ASSERT_EQ(whole[0].log_probs.size(), 2U);
  for (int border = 1; border < config.sampler.steps; ++border) {
    StopAt stop(border);
    EXPECT_THROW(sampler.Denoise(parameters, requests, prompts_, nullptr, {}, &stop), StopAt::PeerStopped);
    ASSERT_EQ(stop.committed.size(), requests.size());
    EXPECT_EQ(stop.committed[0].steps, static_cast<std::uint32_t>(border));
    // Another worker goes on, with one of the batch less.
    const std::vector<Request> rest(requests.begin() + 1, requests.end());
    const std::vector<DenoiseState> states(stop.committed.begin() + 1, stop.committed.end());
    Sampler other(config, SchedulerConfig{}, layout_, {});
    const std::vector<Denoised> resumed = other.Denoise(parameters, rest, prompts_, nullptr, states);
    for (std::size_t i = 0; i < rest.size(); ++i) {
      EXPECT_EQ(resumed[i].latents, whole[i + 1].latents) << border;
      EXPECT_EQ(resumed[i].trajectory, whole[i + 1].trajectory) << border;
      EXPECT_EQ(resumed[i].log_probs, whole[i + 1].log_probs) << border;
      ASSERT_EQ(resumed[i].steps.size(), whole[i + 1].steps.size()) << border;
      EXPECT_EQ(resumed[i].steps[0].sigma, whole[i + 1].steps[0].sigma) << border;
      EXPECT_EQ(resumed[i].steps[1].c_v, whole[i + 1].steps[1].c_v) << border;
    }
  }
}

// The reference scored strict 0.359 and soft 0.668 on the same prompts with other noise: two samples of 256.
TEST_F(ShapesReference, BaseScoreStatistically) {
  Config config;
  Sampler sampler(config, SchedulerConfig{}, layout_, {});
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  double strict = 0, soft = 0;
  int images = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::vector<Request> requests;
    for (std::uint32_t p = 0; p < prompts_.prompts.size(); ++p) {
      requests.push_back({.kind = RequestKind::kEvaluate, .prompt_index = p, .seed = seed});
    }
    const std::vector<Denoised> denoised = sampler.Denoise(model.Of({0, false}), requests, prompts_);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const RewardScore score = reward_->Score(prompts_.prompts[i], vae_.Decode(denoised[i].latents, 4, 4));
      strict += score.terms[0];
      soft += score.terms[1];
      ++images;
    }
  }
  // Standard error of the difference of two such means: about 0.042 and 0.03; three of them.
  EXPECT_NEAR(strict / images, 0.359, 0.127);
  EXPECT_NEAR(soft / images, 0.668, 0.09);
}

}  // namespace
}  // namespace spotlight
