// Reuse of steps (model/step_cache.hpp): diffusers' first-block cache and TeaCache number for number, the decisions
// included, by one rank and by a group; and a sample's decisions and velocities, whatever its batch and its group.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "model/guided_velocity.hpp"
#include "model/model_weights.hpp"
#include "tests/model/baton_group.hpp"
#include "tests/model/golden.hpp"
#include "tests/model/tested_activations.hpp"

namespace spotlight {
namespace {

using Gate = StepCache::Gate;
using Compute = StepCache::Compute;

constexpr StepCache::Polynomial kPolynomial = {-450, 280, -45, 3.2, -0.02};

// What a sequence of passes has left: [steps] velocities, and of each pass D and whether it computed, a sample each.
struct Passes {
  std::vector<std::vector<float>> velocities;
  std::vector<std::vector<double>> changes;
  std::vector<std::vector<int>> computed;
};

// Latents [steps][B, S, C] at a noise level each.
Passes MakePasses(const GoldenModel& model, const Buffer& weights, double guidance, const TextCondition& negative,
                  const std::vector<TextCondition>& texts, ImageShape shape,
                  const std::vector<std::vector<float>>& latents, const std::vector<float>& levels, StepCache* cache,
                  Compute compute, SequenceGroup* group = nullptr) {
  FlatParameters parameters(*model.layout, weights.data());
  GuidedVelocity velocity(model.layout, guidance, negative, false, tested_activations);
  std::vector<const TextCondition*> conditions;
  for (const TextCondition& text : texts) conditions.push_back(&text);
  velocity.SetTexts(parameters, conditions, true, group);
  if (cache != nullptr) cache->Start(velocity.samples(std::ssize(texts)));
  Passes passes;
  std::vector<int> before;
  for (std::size_t i = 0; i < latents.size(); ++i) {
    const Buffer x = Upload(latents[i]);
    Buffer v(x.size());
    velocity.Forward(parameters,
                     {.image_shape = shape,
                      .latents = x.data(),
                      .levels = {levels[i]},
                      .level_index = std::vector<int>(texts.size(), 0),
                      .reuse = {cache, i == 0 ? Compute::kAll : compute}},
                     false, v.data());
    passes.velocities.push_back(Host(v));
    if (cache == nullptr) continue;
    std::vector<int> now = cache->computed();
    before.resize(now.size());
    for (std::size_t b = 0; b < now.size(); ++b) std::swap(before[b], now[b]);  // now: the counts before
    for (std::size_t b = 0; b < now.size(); ++b) now[b] = before[b] - now[b];
    passes.computed.push_back(now);
    passes.changes.push_back(cache->changes());
  }
  return passes;
}

TEST(StepCacheGolden, DecidesAndComputesAsTheLibraryDoes) {
  const std::string path = GoldenDir() + "/cache.safetensors";
  if (!InGoldenSet(path)) GTEST_SKIP();
  const SafetensorsFile file(path);
  const GoldenModel model = LoadGoldenModel(GoldenSpec().at("cache").at("transformer"));
  const Buffer weights = Upload(model.weights);
  const HostTensor hidden = file.Read("hidden_states"), text = file.Read("encoder_hidden_states");
  const std::vector<float> shape = file.Read("img_shapes").data;
  const auto steps = static_cast<std::size_t>(hidden.shape[0]);
  const Index row = hidden.shape[1] * hidden.shape[2];
  std::vector<std::vector<float>> latents;
  for (std::size_t i = 0; i < steps; ++i) {
    const auto begin = hidden.data.begin() + static_cast<Index>(i) * row;
    latents.emplace_back(begin, begin + row);
  }
  for (const std::string form : {"fbc", "tea"}) {
    StepCache::Settings settings{.gate = form == "tea" ? Gate::kInput : Gate::kFirstBlock};
    file.ReadDoubles(form + ".threshold", {&settings.threshold, 1});
    if (form == "tea") file.ReadDoubles("tea.coefficients", settings.polynomial);
    std::vector<double> changes(steps);
    file.ReadDoubles(form == "tea" ? "tea.rel_l1" : "fbc.rel_diff", changes);
    const std::vector<float> computed = file.Read(form + ".computed").data;
    const HostTensor output = file.Read(form + ".output");
    const auto check = [&](SequenceGroup* group) {
      StepCache cache(settings);
      const Passes passes =
          MakePasses(model, weights, 1, {}, {{text.shape[1], text.data}},
                     {static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2])}, latents,
                     file.Read("timesteps").data, &cache, Compute::kGated, group);
      for (std::size_t i = 0; i < steps; ++i) {
        const std::string what = form + " step " + std::to_string(i);
        EXPECT_EQ(passes.computed[i][0], static_cast<int>(computed[i])) << what;
        if (i > 0) {
          EXPECT_NEAR(passes.changes[i][0], changes[i], 1e-4 * changes[i]) << what;
        }
        const auto begin = output.data.begin() + static_cast<Index>(i) * row;
        EXPECT_CLOSE(passes.velocities[i], std::vector<float>(begin, begin + row), 8e-6, 2e-5, what);
      }
    };
    check(nullptr);
    Baton(2).Run([&](SequenceGroup& group) { check(&group); });
  }
}

// Three samples whose latents turn at different speeds, so that they are computed at different steps.
class StepCacheBatch : public testing::TestWithParam<Gate> {
 protected:
  static constexpr ImageShape kShape{1, 5, 3};
  static constexpr std::size_t kSteps = 9;

  StepCacheBatch() {
    for (std::size_t b = 0; b < 3; ++b) {
      const Index tokens = std::vector<Index>{4, 1, 6}[b], width = model_.layout->config().joint_attention_dim;
      texts_.push_back({tokens, Normals(b, tokens * width)});
    }
  }

  static std::vector<float> Normals(std::size_t stream, Index size) {
    std::vector<float> values(static_cast<std::size_t>(size));
    FillNormal(StreamKey({stream}), 0, values);
    return values;
  }

  Passes RunSamples(const std::vector<std::size_t>& samples, StepCache* cache, Compute compute,
                    SequenceGroup* group = nullptr) const {
    const Index size = kShape.tokens() * model_.layout->config().in_channels;
    std::vector<TextCondition> texts;
    std::vector<std::vector<float>> latents(kSteps);
    std::vector<float> levels;
    for (std::size_t i = 0; i < kSteps; ++i) {
      levels.push_back(0.9f - 0.002f * static_cast<float>(i));
      for (const std::size_t b : samples) {
        const float angle = 0.04f * static_cast<float>((b + 1) * i);
        const std::vector<float> x = Normals(10 + b, size), y = Normals(20 + b, size);
        for (std::size_t j = 0; j < x.size(); ++j) {
          latents[i].push_back(std::cos(angle) * x[j] + std::sin(angle) * y[j]);
        }
      }
    }
    for (const std::size_t b : samples) texts.push_back(texts_[b]);
    return MakePasses(model_, weights_, 4.0, texts_[0], texts, kShape, latents, levels, cache, compute, group);
  }

  static StepCache::Settings Settings() {
    const bool input = GetParam() == Gate::kInput;
    return {.gate = GetParam(), .threshold = input ? 0.1 : 0.36, .polynomial = kPolynomial};
  }

  GoldenModel model_ = LoadGoldenModel("tiny");
  Buffer weights_ = Upload(model_.weights);
  std::vector<TextCondition> texts_;
};

TEST_P(StepCacheBatch, ASampleDoesNotDependOnItsBatchOrItsGroup) {
  StepCache cache(Settings());
  const Passes all = RunSamples({0, 1, 2}, &cache, Compute::kGated);
  int partial = 0;
  for (const std::vector<int>& computed : all.computed) {
    const auto count = std::count(computed.begin(), computed.end(), 1);
    partial += count > 0 && count < std::ssize(computed) ? 1 : 0;
  }
  EXPECT_GE(partial, 2) << "passes that compute some samples only";
  EXPECT_GT(*std::max_element(cache.computed().begin(), cache.computed().end()), 1);
  EXPECT_LT(*std::min_element(cache.computed().begin(), cache.computed().end()), static_cast<int>(kSteps));
  for (std::size_t b = 0; b < 3; ++b) {
    StepCache own(Settings());
    const Passes alone = RunSamples({b}, &own, Compute::kGated);
    for (std::size_t i = 0; i < kSteps; ++i) {
      const auto begin = all.velocities[i].begin() + static_cast<Index>(b * alone.velocities[i].size());
      EXPECT_EQ(alone.velocities[i], std::vector<float>(begin, begin + std::ssize(alone.velocities[i]))) << i;
      for (std::size_t branch = 0; branch < 2; ++branch) {
        EXPECT_EQ(alone.computed[i][branch], all.computed[i][2 * b + branch]) << i;
      }
    }
  }
  Baton(2).Run([&](SequenceGroup& group) {
    StepCache own(Settings());
    const Passes shared = RunSamples({0, 1, 2}, &own, Compute::kGated, &group);
    EXPECT_EQ(shared.velocities, all.velocities);
    EXPECT_EQ(shared.computed, all.computed);
  });
}

TEST_P(StepCacheBatch, ComputingAllHasTheBitsOfNoCache) {
  StepCache cache(Settings());
  const Passes with = RunSamples({0, 1, 2}, &cache, Compute::kAll);
  EXPECT_EQ(with.velocities, RunSamples({0, 1, 2}, nullptr, Compute::kAll).velocities);
  EXPECT_EQ(cache.computed(), std::vector<int>(6, kSteps));
}

INSTANTIATE_TEST_SUITE_P(Gates, StepCacheBatch, testing::Values(Gate::kInput, Gate::kFirstBlock));

// Weights or latents that are not finite must not be taken for steady ones.
TEST(StepCache, WhatIsNoNumberIsComputed) {
  const GoldenModel model = LoadGoldenModel("tiny");
  const Buffer weights = Upload(model.weights);
  const std::vector<float> x(48 * 16, 0.1f), broken(48 * 16, std::nanf(""));
  const TextCondition text{1, std::vector<float>(static_cast<std::size_t>(model.layout->config().joint_attention_dim))};
  for (const Gate gate : {Gate::kInput, Gate::kFirstBlock}) {
    StepCache cache({.gate = gate, .threshold = 1e30});
    MakePasses(model, weights, 1, {}, {text}, {1, 6, 8}, {x, x, broken}, {0.5f, 0.5f, 0.5f}, &cache, Compute::kGated);
    EXPECT_EQ(cache.computed(), std::vector<int>{2}) << "not the second pass, but the third";
    EXPECT_FALSE(cache.reused_all());
  }
}

}  // namespace
}  // namespace spotlight
