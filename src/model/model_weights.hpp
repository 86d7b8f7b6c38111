// A rank's model weights: the fixed base, and one or more versions of what is trained (the LoRA adapter, or all base
// weights where there is none).
//
// With an adapter the base is read once, in the asked precision; if the sigmas of the run are given, the modulation is
// made a table (model/modulation.hpp) and its weights are not kept. Without an adapter each version is a whole model.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "kernels/buffer.hpp"
#include "model/modulation.hpp"
#include "model/weight_storage.hpp"

namespace spotlight {

// Names one set of trained weights. ema: the moving average that evaluation uses.
struct WeightKey {
  std::uint64_t version = 0;
  bool ema = false;
  bool operator==(const WeightKey&) const = default;
};

class ModelWeights {
 public:
  // base: the checkpoint; its names and shapes have been checked. sigmas: all that passes will see, of a base that is
  // not trained; empty: no table. versions: sets that are kept at a time.
  ModelWeights(std::shared_ptr<const DitLayout> layout, std::shared_ptr<const TensorSource> base, Precision precision,
               const std::vector<float>& sigmas, std::size_t versions = 1);

  bool lora() const { return layout_->lora().rank > 0; }
  const ParameterLayout& trained_layout() const { return lora() ? layout_->adapter() : layout_->base(); }
  Precision precision() const { return precision_; }

  // trained [trained_layout().size()]. Where all sets are taken the oldest goes.
  void Put(const WeightKey& key, std::span<const float> trained);
  bool Has(const WeightKey& key) const;

  // What a pass with these weights reads; no gradients. SPOTLIGHT_REQUIREs Has(key).
  Parameters& Of(const WeightKey& key);
  // The untrained model: reference of the KL term. Reads it first where all weights are trained.
  Parameters& Base();
  // lora(): the base with an adapter that lives elsewhere (the trainer's), and its gradient.
  std::unique_ptr<Parameters> WithAdapter(const float* adapter, float* gradient) const;

 private:
  struct Entry {
    WeightKey key;
    Buffer adapter;
    std::unique_ptr<WeightStorage> storage;  // without an adapter
    std::unique_ptr<Parameters> parameters;
  };
  void LoadBase();
  std::unique_ptr<Parameters> OverBase(const float* adapter, float* gradient) const;

  std::shared_ptr<const DitLayout> layout_;
  std::shared_ptr<const TensorSource> source_;
  Precision precision_;
  std::size_t versions_;
  std::unique_ptr<ModulationTable> modulation_;
  std::unique_ptr<WeightStorage> base_;
  std::unique_ptr<Parameters> base_parameters_;
  std::list<Entry> entries_;
};

// The adapter of version 0, which changes nothing yet: A ~ N(0, 1/r) in standard deviation, B = 0 (Flow-GRPO's Gaussian
// initialisation), drawn from `run_seed`. [layout.adapter().size()]
std::vector<float> InitialAdapter(const DitLayout& layout, std::uint64_t run_seed);

}  // namespace spotlight
