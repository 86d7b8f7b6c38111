// A rank's model weights: the fixed base, and one or more versions of what is trained (the LoRA adapter, or all base
// weights where there is none).
//
// With an adapter the base is read once, in the asked precision; if the sigmas of the run are given, the modulation is
// made a table (model/modulation.hpp) and its weights are not kept. Without an adapter each version is a whole model.
// All of it lies in the node's memory, each piece under a name of its own: the ranks of a node share one copy, and only
// the first of them reads files or the network. Names of the last two versions are kept there.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/node_memory.hpp"
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
  // not trained; empty: no table. versions: sets that are kept at a time. node: where all of it lies, shared with ranks
  // that have the same layout, base, precision and sigmas; must outlive this; null: this rank's own memory.
  ModelWeights(std::shared_ptr<const DitLayout> layout, std::shared_ptr<const TensorSource> base, Precision precision,
               const std::vector<float>& sigmas, std::size_t versions = 1, NodeMemory* node = nullptr);

  bool lora() const { return layout_->lora().rank > 0; }
  const ParameterLayout& trained_layout() const { return lora() ? layout_->adapter() : layout_->base(); }
  Precision precision() const { return precision_; }

  // Writes all of a set's values [trained_layout().size()]; throws what cannot be had.
  using Fetch = std::function<void(std::span<float>)>;
  // The set `key` is here afterwards. Where all sets are taken the oldest goes. `fetch` is called only if no rank of
  // the node has the set, or if its copy is damaged; it must not wait for ranks of this node, which may be waiting for
  // it. What it throws is passed on. discard: called before memory goes that `fetch` has filled and that was damaged
  // then.
  void Load(const WeightKey& key, const Fetch& fetch, const std::function<void()>& discard = {});
  // Load of values that are here already.
  void Put(const WeightKey& key, std::span<const float> trained);
  bool Has(const WeightKey& key) const;

  // What a pass with these weights reads; no gradients. SPOTLIGHT_REQUIREs Has(key).
  Parameters& Of(const WeightKey& key);
  // The untrained model: reference of the KL term. Reads it first where all weights are trained.
  Parameters& Base();
  // lora(): the base with an adapter that lives elsewhere (the trainer's), and its gradient.
  std::unique_ptr<Parameters> WithAdapter(const float* adapter, float* gradient) const;
  // All that is here has the checksum that it was written with, perhaps by a neighbour. Reads all of it.
  bool Intact() const;

 private:
  struct Entry {
    WeightKey key;
    NodeBlob blob;
    Buffer adapter;                          // a view of the blob
    std::unique_ptr<WeightStorage> storage;  // without an adapter
    std::unique_ptr<Parameters> parameters;
  };
  void LoadBase();
  Entry MakeEntry(const WeightKey& key, const Fetch& fetch);
  static bool IntactEntry(const Entry& entry);
  void DropOldNames(std::uint64_t version) const;
  std::unique_ptr<Parameters> OverBase(const float* adapter, float* gradient) const;

  std::shared_ptr<const DitLayout> layout_;
  std::shared_ptr<const TensorSource> source_;
  Precision precision_;
  std::size_t versions_;
  NodeMemory own_memory_;  // used without a node's
  NodeMemory& node_;
  std::unique_ptr<ModulationTable> modulation_;
  std::unique_ptr<WeightStorage> base_;
  std::unique_ptr<Parameters> base_parameters_;
  std::list<Entry> entries_;
};

// The adapter of version 0, which changes nothing yet: A ~ N(0, 1/r) in standard deviation, B = 0 (Flow-GRPO's Gaussian
// initialisation), drawn from `run_seed`. [layout.adapter().size()]
std::vector<float> InitialAdapter(const DitLayout& layout, std::uint64_t run_seed);

}  // namespace spotlight
