// The trainer's gradient where the clip takes a part of it away.
#include "train/trainer.hpp"

#include <gtest/gtest.h>

#include "base/random.hpp"

namespace spotlight {
namespace {

std::vector<float> Normals(std::uint64_t stream, Index size, float scale) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(stream, 0, values);
  for (float& value : values) value *= scale;
  return values;
}

class ClippedPairs : public testing::Test {
 protected:
  ClippedPairs() {
    config_.sampler.height = config_.sampler.width = 32;
    config_.train.updates = 1;
    config_.train.clip_range = 1e-4;
    TransformerConfig transformer;
    transformer.num_layers = 1;
    transformer.num_attention_heads = 2;
    transformer.attention_head_dim = 24;
    transformer.axes_dims_rope = {4, 10, 10};
    transformer.joint_attention_dim = 32;
    layout_ = std::make_shared<const DitLayout>(transformer, LoraSettings{});
    conditions_.push_back({3, Normals(1, 3 * 32, 1)});
  }

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

  std::map<std::string, double> Train(const std::vector<TrainSample>& samples) {
    const std::vector<float> weights = Normals(2, layout_->base().size(), 0.1f);
    const std::shared_ptr<const TensorSource> source =
        std::make_shared<WeightMapSource>(layout_->base().ToWeightMap(weights), "weights");
    ModelWeights model(layout_, source, Precision::kFp32, {});
    World world;
    TrainerGroup group(world);
    Trainer trainer(config_, layout_, model, group);
    trainer.trained().SetState(TrainedWeights::InitialState(config_, weights));
    return trainer.Train(0, samples, conditions_);
  }

  Config config_;
  std::shared_ptr<const DitLayout> layout_;
  std::vector<TextCondition> conditions_;
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
  EXPECT_EQ(both.at("policy_pairs"), 8);
  EXPECT_GT(both.at("optim_grad_norm"), 0);
  const double first = Train({samples[0], samples[2]}).at("policy_loss");
  const double second = Train({samples[1], samples[3]}).at("policy_loss");
  EXPECT_NE(first, second) << "the text matters";
  EXPECT_NEAR(both.at("policy_loss"), (first + second) / 2, 1e-6);
}

}  // namespace
}  // namespace spotlight
