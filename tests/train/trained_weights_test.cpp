// TrainedWeights of one trainer: its updates against torch's rules in plain double arithmetic, and the order in which
// the gradients of several passes are summed.
#include "train/trained_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/random.hpp"

namespace spotlight {
namespace {

std::vector<float> Normals(std::uint64_t stream, Index size, double scale) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(stream, 0, values);
  for (float& value : values) value = static_cast<float>(scale * value);
  return values;
}

// The largest difference relative to the largest value.
void ExpectClose(const std::vector<float>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << i;
    difference = std::max(difference, std::abs(actual[i] - expected[i]));
    largest = std::max(largest, std::abs(expected[i]));
  }
  EXPECT_LE(difference, tolerance * largest);
}

class OneTrainersWeights : public testing::Test {
 protected:
  // Calls body with all weights trained, or an adapter.
  void Run(int lora_rank, const std::function<void(TrainedWeights&)>& body) {
    TransformerConfig transformer;
    transformer.num_layers = 2;
    transformer.num_attention_heads = 2;
    transformer.attention_head_dim = 24;
    transformer.axes_dims_rope = {4, 10, 10};
    transformer.joint_attention_dim = 32;
    LoraSettings lora{.rank = lora_rank, .alpha = 4};
    if (lora_rank > 0) lora.targets = {"to_q", "to_v"};
    layout_ = std::make_shared<const DitLayout>(transformer, lora);
    const std::vector<float> base = Normals(1, layout_->base().size(), 0.1);
    const std::shared_ptr<const TensorSource> source =
        std::make_shared<WeightMapSource>(layout_->base().ToWeightMap(base), "weights");
    const ModelWeights model(layout_, source, Precision::kFp32, {});
    World world;
    TrainerGroup group(world);
    TrainedWeights trained(config_, layout_, model, group);
    size_ = model.trained_layout().size();
    body(trained);
  }

  // Adds gradients as a pass does, part by part, each element in these pieces.
  void Pass(TrainedWeights& trained, const std::vector<std::vector<float>>& pieces) const {
    Parameters& parameters = trained.parameters();
    for (const int part : layout_->backward_order()) {
      if (part >= layout_->used_parts(parameters.modulation != nullptr)) continue;
      const PartMemory memory = parameters.Use(part);
      const PartLayout& sizes = layout_->parts()[static_cast<std::size_t>(part)];
      const bool lora = layout_->lora().rank > 0;
      float* const gradient = lora ? memory.adapter_gradient : memory.vectors_gradient;
      const Index offset = lora ? sizes.adapter_offset : sizes.offset, size = lora ? sizes.adapter : sizes.size();
      for (const std::vector<float>& piece : pieces) {
        for (Index i = 0; i < size; ++i) gradient[i] += piece[static_cast<std::size_t>(offset + i)];
      }
      parameters.GradientDone(part);
    }
  }

  // Three updates, the first of them number `before` + 1, with gradients above and below the norm that they are clipped
  // to.
  void FollowTorch(std::int64_t before) {
    const TrainConfig& c = config_.train;
    Run(0, [&](TrainedWeights& trained) {
      OptimizerState state = TrainedWeights::InitialState(config_, Normals(2, size_, 0.1));
      state.updates = before;
      trained.SetState(state);
      std::vector<double> w(state.weights.begin(), state.weights.end()), m(w.size()), v(w.size()), ema = w;
      for (int update = 0; update < 3; ++update) {
        const double norm = update % 2 == 0 ? 5 : 0.1;
        const std::vector<float> gradient =
            Normals(static_cast<std::uint64_t>(3 + update), size_, norm / std::sqrt(static_cast<double>(size_)));
        double square = 0;
        for (const float g : gradient) square += static_cast<double>(g) * g;
        trained.ZeroGradient();
        Pass(trained, {gradient});
        EXPECT_NEAR(trained.Update(), std::sqrt(square), 1e-9);
        // torch.nn.utils.clip_grad_norm_, torch.optim.AdamW, and the average of Flow-GRPO's ema.py.
        const double clip = std::min(1.0, c.grad_norm / (std::sqrt(square) + 1e-6));
        const double n = static_cast<double>(before + update + 1), decay = std::min(c.ema_decay, (1 + n) / (10 + n));
        for (std::size_t i = 0; i < w.size(); ++i) {
          const double g = clip * gradient[i];
          w[i] *= 1 - c.lr * c.weight_decay;
          m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
          v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
          const double root = std::sqrt(v[i]) / std::sqrt(1 - std::pow(c.beta2, n));
          w[i] -= c.lr / (1 - std::pow(c.beta1, n)) * m[i] / (root + c.eps);
          ema[i] = decay * ema[i] + (1 - decay) * w[i];
        }
      }
      state = trained.State();
      EXPECT_EQ(state.updates, before + 3);
      ExpectClose(state.weights, w, 1e-6);
      ExpectClose(state.first_moment, m, 1e-6);
      ExpectClose(state.second_moment, v, 1e-6);
      ExpectClose(state.ema, ema, 1e-6);
    });
  }

  Config config_;
  std::shared_ptr<const DitLayout> layout_;
  Index size_ = 0;  // of what is trained
};

TEST_F(OneTrainersWeights, FollowTorch) {
  config_.train.lr = 1e-2;
  config_.train.grad_norm = 0.5;
  config_.train.weight_decay = 0.1;
  config_.train.ema_decay = 0.9;
  for (const double beta2 : {0.999, 0.99999, 0.99999999}) {  // to fp32 the last one is 1
    SCOPED_TRACE(beta2);
    config_.train.beta2 = beta2;
    FollowTorch(0);
    FollowTorch(200);  // where (1 + n) / (10 + n) is above the average's decay
  }
}

// 1 + (2^-24 + 2^-24), not (1 + 2^-24) + 2^-24: the order that several trainers have, too.
TEST_F(OneTrainersWeights, SumEachPassBeforeItIsAddedToOthers) {
  for (const int lora_rank : {0, 3}) {
    Run(lora_rank, [&](TrainedWeights& trained) {
      trained.SetState(TrainedWeights::InitialState(config_, Normals(2, size_, 0.1)));
      trained.ZeroGradient();
      const auto all = [&](float value) { return std::vector<float>(static_cast<std::size_t>(size_), value); };
      Pass(trained, {all(1)});
      Pass(trained, {all(0x1p-24f), all(0x1p-24f)});
      EXPECT_NEAR(trained.Update() / std::sqrt(static_cast<double>(size_)), 1 + 0x1p-23, 1e-10) << lora_rank;
    });
  }
}

}  // namespace
}  // namespace spotlight
