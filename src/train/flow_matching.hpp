// Pre-training by flow matching: x_t = (1 - t) image + t noise, loss = mean (v - (noise - image))^2.
//
// Trains the transformer and the text embedding table together. Block matrices use Muon, all other
// parameters AdamW; a moving average of both is kept. t is logit-normal(0, 1), every fourth uniform.
// Every draw is a pure function of (run seed, step, sample), so a resumed run gives the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/config.hpp"
#include "kernels/buffer.hpp"
#include "model/dit.hpp"
#include "train/muon.hpp"

namespace spotlight {

// One training example.
struct FlowExample {
  std::vector<float> latents;  // [S * C] packed, of the image
  std::vector<int> tokens;     // [T] words
};

class FlowMatchingTrainer {
 public:
  FlowMatchingTrainer(const Config& config, std::shared_ptr<const DitLayout> layout, int words);

  // All trained parameters and optimizer state, flat: the transformer's parameters, then the table [words, text width].
  struct State {
    std::vector<float> weights, ema, first_moment, second_moment;
    std::int64_t step = 0;
  };
  // DiT initialisation: Xavier uniform, zero biases, zero modulation and output layers, table N(0, 1).
  State InitialState() const;
  void SetState(const State& state);
  State GetState() const;

  // One optimizer step on a batch of one image size and text length; returns the loss.
  double Step(const std::vector<FlowExample>& batch, ImageShape shape);
  // Whether the weights are numbers still.
  bool finite() const;

  // Parameters of the transformer within a flat array of all.
  std::int64_t transformer_size() const { return layout_->base().size(); }

 private:
  void Optimize();

  Config config_;
  std::shared_ptr<const DitLayout> layout_;
  int words_;
  Dit dit_;
  Muon muon_;
  Buffer weights_, gradient_, ema_, first_moment_, second_moment_;
  std::int64_t step_ = 0;
  Buffer x_, text_, v_, dv_, dtext_;
};

}  // namespace spotlight
