// The trainer's gradient: the derivative of its loss, whatever the micro-batches and updates, and where the clip takes
// a part of it away.
#include "train/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.hpp"

namespace spotlight {
namespace {

std::vector<float> Normals(std::uint64_t stream, Index size, float scale) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(stream, 0, values);
  for (float& value : values) value *= scale;
  return values;
}

double Norm(const std::vector<float>& values) {
  double square = 0;
  for (const float value : values) square += static_cast<double>(value) * value;
  return std::sqrt(square);
}

// |a - b| / |b|.
double Distance(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return Norm(a) / Norm(b);
}

class OneTrainer : public testing::Test {
 protected:
  OneTrainer() {
    config_.sampler.height = config_.sampler.width = 32;
    config_.train.updates = 1;
    config_.train.grad_norm = 0;
    config_.train.beta1 = 0;  // the first moment is the last update's gradient
    TransformerConfig transformer;
    transformer.num_layers = 1;
    transformer.num_attention_heads = 2;
    transformer.attention_head_dim = 24;
    transformer.axes_dims_rope = {4, 10, 10};
    transformer.joint_attention_dim = 32;
    layout_ = std::make_shared<const DitLayout>(transformer, LoraSettings{});
    conditions_.push_back({3, Normals(1, 3 * 32, 1)});
    base_ = weights_ = Normals(2, layout_->base().size(), 0.1f);
  }

  std::map<std::string, double> Train(const std::vector<TrainSample>& samples) {
    const std::shared_ptr<const TensorSource> source =
        std::make_shared<WeightMapSource>(layout_->base().ToWeightMap(base_), "weights");
    ModelWeights model(layout_, source, Precision::kFp32, {});
    World world;
    TrainerGroup group(world);
    Trainer trainer(config_, layout_, model, group);
    trainer.trained().SetState(TrainedWeights::InitialState(config_, weights_));
    std::map<std::string, double> metrics = trainer.Train(0, samples, conditions_);
    gradient_ = trainer.trained().State().first_moment;
    return metrics;
  }

  Config config_;
  std::shared_ptr<const DitLayout> layout_;
  std::vector<TextCondition> conditions_;
  std::vector<float> base_, weights_;  // the reference, and what is trained
  std::vector<float> gradient_;        // of the last update of the last Train
};

// Without a clip, and with (parameter) a distance from the base, which the weights have left.
class UnclippedPairs : public OneTrainer, public testing::WithParamInterface<double> {
 protected:
  UnclippedPairs() {
    config_.train.clip_range = 0.9;
    config_.train.kl_beta = GetParam();
    const std::vector<float> change = Normals(4, layout_->base().size(), 0.02f);
    for (std::size_t i = 0; i < change.size(); ++i) weights_[i] += change[i];
  }

  // Ratios of 0.5 to 1.5.
  TrainSample Sample(std::uint64_t stream, double advantage, std::size_t steps) const {
    const Index row = 4 * layout_->config().in_channels;
    TrainSample sample{{}, advantage};
    sample.sample.latents = Normals(stream, static_cast<Index>(steps + 1) * row, 1);
    sample.sample.log_probs.assign(steps, -2.0f);
    sample.sample.steps.assign(steps, {.sigma = 0.5f, .c_x = 1, .c_v = -0.5f, .tau = 1, .log_prob_scale = 1});
    return sample;
  }
  // 24 pairs.
  std::vector<TrainSample> Samples() const {
    std::vector<TrainSample> samples;
    for (std::uint64_t i = 0; i < 12; ++i) samples.push_back(Sample(40 + i, i % 3 == 0 ? 1.3 : -0.7, 2));
    return samples;
  }
};

TEST_P(UnclippedPairs, AddUpWhateverTheMicroBatch) {
  const std::map<std::string, double> whole = Train(Samples());
  const std::vector<float> gradient = gradient_;
  config_.train.micro_batch = 5;
  const std::map<std::string, double> split = Train(Samples());
  for (const auto& metrics : {whole, split}) {
    EXPECT_EQ(metrics.at("policy_pairs"), 24);
    EXPECT_EQ(metrics.at("policy_clip_frac_high") + metrics.at("policy_clip_frac_low"), 0);
    EXPECT_EQ(metrics.at("policy_kl") > 0, GetParam() > 0);
  }
  EXPECT_NEAR(split.at("policy_loss"), whole.at("policy_loss"), 1e-12);
  EXPECT_NEAR(split.at("optim_grad_norm") / whole.at("optim_grad_norm"), 1, 1e-5);
  EXPECT_LT(Distance(gradient_, gradient), 1e-5);
}

TEST_P(UnclippedPairs, HaveTheDerivativeOfTheLossAsGradient) {
  const double norm = Train(Samples()).at("optim_grad_norm");
  EXPECT_NEAR(norm, Norm(gradient_), 1e-9 * norm);
  const std::vector<float> direction = gradient_, centre = weights_;
  const double length = 1e-3;
  const auto loss_at = [&](double along) {
    for (std::size_t i = 0; i < centre.size(); ++i) {
      weights_[i] = static_cast<float>(centre[i] + along / norm * direction[i]);
    }
    return Train(Samples()).at("policy_loss");
  };
  EXPECT_NEAR((loss_at(length) - loss_at(-length)) / (2 * length), norm, 2e-3 * norm);
}

// Every update is a mean over its own pairs: of pairs that are all alike each has the same gradient.
TEST_P(UnclippedPairs, AreAveragedWithinTheirUpdate) {
  config_.train.lr = 0;
  const std::vector<TrainSample> alike(5, Sample(40, 1.3, 1));
  const double norm = Train(alike).at("optim_grad_norm");
  const std::vector<float> gradient = gradient_;
  config_.train.updates = 2;  // of two pairs and of three
  const std::map<std::string, double> twice = Train(alike);
  EXPECT_EQ(twice.at("optim_updates"), 2);
  EXPECT_NEAR(twice.at("optim_grad_norm"), norm, 1e-5 * norm);
  EXPECT_LT(Distance(gradient_, gradient), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Kl, UnclippedPairs, testing::Values(0.0, 0.5));

class ClippedPairs : public OneTrainer {
 protected:
  ClippedPairs() { config_.train.clip_range = 1e-4; }

  // A sample of two steps whose probability ratio is about 1.5: above the clip.
  TrainSample AboveTheClip(std::uint64_t stream, double advantage) const {
    const Index row = 4 * layout_->config().in_channels;
    TrainSample sample{{}, advantage};
    sample.sample.latents = Normals(stream, 3 * row, 1);
    sample.sample.log_probs = {-0.4f, -0.4f};
    const StepCoefficients step{.sigma = 0.5f, .c_x = 1, .c_v = -0.1f, .tau = 1, .log_prob_scale = 1e-3};
    sample.sample.steps = {step, step};
    return sample;
  }
};

// A positive advantage above the clip has no gradient, a negative one keeps it. Leaving out the first kind changes the
// mean over the pairs only by their number.
TEST_F(ClippedPairs, AddNothingToTheGradient) {
  std::vector<TrainSample> all, live;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const bool clipped = i % 5 != 1;  // 6 of 24 pairs live: the trainer also moves some
    all.push_back(AboveTheClip(10 + i, clipped ? 1.0 : -1.0));
    if (!clipped) live.push_back(all.back());
  }
  const std::map<std::string, double> of_all = Train(all), of_live = Train(live);
  EXPECT_EQ(of_all.at("policy_pairs"), 24);
  EXPECT_EQ(of_all.at("policy_clip_frac_high"), 18.0 / 24);
  EXPECT_EQ(of_live.at("policy_pairs"), 6);
  EXPECT_EQ(of_live.at("policy_clip_frac_high"), 0);
  EXPECT_GT(of_live.at("optim_grad_norm"), 0);
  EXPECT_NEAR(of_all.at("optim_grad_norm") * 24 / (of_live.at("optim_grad_norm") * 6), 1, 1e-5);
}

TEST_F(ClippedPairs, AloneGiveNoGradient) {
  const std::map<std::string, double> metrics = Train({AboveTheClip(1, 1.0), AboveTheClip(2, 1.0)});
  EXPECT_EQ(metrics.at("policy_clip_frac_high"), 1);
  EXPECT_EQ(metrics.at("optim_grad_norm"), 0);
}

// Prompts of unlike length in one micro-batch: the gradient is that of training on both, whatever the pairs' order.
TEST_F(ClippedPairs, TextsOfUnlikeLengthAreTrainedTogether) {
  conditions_.push_back({5, Normals(3, 5 * 32, 1)});
  std::vector<TrainSample> samples;
  for (std::uint64_t i = 0; i < 4; ++i) {
    samples.push_back(AboveTheClip(20 + i, -1.0));
    samples.back().sample.request.prompt_index = static_cast<std::uint32_t>(i % 2);
  }
  const std::map<std::string, double> both = Train(samples);
  const std::vector<float> gradient = gradient_;
  EXPECT_EQ(both.at("policy_pairs"), 8);
  EXPECT_GT(both.at("optim_grad_norm"), 0);
  const double first = Train({samples[0], samples[2]}).at("policy_loss");
  std::vector<float> mean = gradient_;
  const double second = Train({samples[1], samples[3]}).at("policy_loss");
  EXPECT_NE(first, second) << "the text matters";
  EXPECT_NEAR(both.at("policy_loss"), (first + second) / 2, 1e-6);
  for (std::size_t i = 0; i < mean.size(); ++i) mean[i] = (mean[i] + gradient_[i]) / 2;
  EXPECT_LT(Distance(gradient, mean), 1e-5);
}

}  // namespace
}  // namespace spotlight
