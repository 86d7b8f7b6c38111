// A rank's model weights: the fixed base, and one or more versions of what is trained (the LoRA
// adapter, or all base weights where there is none).
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>

#include "kernels/buffer.hpp"
#include "model/adapted_linear.hpp"
#include "model/dit.hpp"

namespace spotlight {

// Names one set of trained weights. ema: the moving average that evaluation uses.
struct WeightKey {
  std::uint64_t version = 0;
  bool ema = false;
  bool operator==(const WeightKey&) const = default;
};

class ModelWeights {
 public:
  // base [layout.base().size()]: the checkpoint's weights.
  ModelWeights(std::shared_ptr<const DitLayout> layout, std::span<const float> base);

  bool lora() const { return layout_->lora().rank > 0; }
  const ParameterLayout& trained_layout() const { return lora() ? layout_->adapter() : layout_->base(); }

  // Keeps the newest kVersions sets, the oldest goes.
  void Put(const WeightKey& key, std::span<const float> trained);
  bool Has(const WeightKey& key) const;

  // What a pass with these weights works on; no gradients. SPOTLIGHT_REQUIREs Has(key).
  ParameterMemory Memory(const WeightKey& key) const;
  // The same for trained weights that live elsewhere (the trainer's), with their gradient (null: none).
  ParameterMemory Memory(const float* trained, float* gradient) const;
  // The untrained model: reference of the KL term.
  ParameterMemory BaseMemory() const;

 private:
  static constexpr std::size_t kVersions = 2;  // rollout and evaluation weights of one iteration

  struct Entry {
    WeightKey key;
    Buffer values;
  };
  std::shared_ptr<const DitLayout> layout_;
  Buffer base_;
  std::list<Entry> entries_;
};

// The trained weights of version 0: the base itself, or an adapter that changes nothing yet
// (A ~ N(0, 1/r) in standard deviation, B = 0; Flow-GRPO's Gaussian initialisation), drawn from `run_seed`.
std::vector<float> InitialTrainedWeights(const DitLayout& layout, std::span<const float> base, std::uint64_t run_seed);

}  // namespace spotlight
