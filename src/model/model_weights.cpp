#include "model/model_weights.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/prompt.hpp"
#include "base/random.hpp"

namespace spotlight {

ModelWeights::ModelWeights(std::shared_ptr<const DitLayout> layout, std::span<const float> base)
    : layout_(std::move(layout)), base_(static_cast<Index>(base.size())) {
  SPOTLIGHT_REQUIRE(base_.size() == layout_->base().size(), "weights of another layout");
  base_.CopyFromHost(base);
}

void ModelWeights::Put(const WeightKey& key, std::span<const float> trained) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(trained.size()) == trained_layout().size(), "weights of another layout");
  entries_.remove_if([&](const Entry& entry) { return entry.key == key; });
  if (entries_.size() < kVersions) {
    entries_.emplace_front();
  } else {
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));  // the oldest one's memory
  }
  entries_.front().key = key;
  entries_.front().values.Resize(static_cast<Index>(trained.size()));
  entries_.front().values.CopyFromHost(trained);
}

bool ModelWeights::Has(const WeightKey& key) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
}

ParameterMemory ModelWeights::Memory(const WeightKey& key) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  SPOTLIGHT_REQUIRE(found != entries_.end(), "weight version is not here");
  return Memory(found->values.data(), nullptr);
}

ParameterMemory ModelWeights::Memory(const float* trained, float* gradient) const {
  if (!lora()) return {.base = trained, .base_gradient = gradient};
  return {.base = base_.data(),
          .adapter = trained,
          .adapter_gradient = gradient,
          .lora_rank = layout_->lora().rank,
          .lora_scale = static_cast<float>(layout_->lora().alpha / layout_->lora().rank)};
}

ParameterMemory ModelWeights::BaseMemory() const { return {.base = base_.data()}; }

std::vector<float> InitialTrainedWeights(const DitLayout& layout, std::span<const float> base, std::uint64_t run_seed) {
  if (layout.lora().rank == 0) return {base.begin(), base.end()};
  std::vector<float> values(static_cast<std::size_t>(layout.adapter().size()), 0.0f);
  for (const Parameter& parameter : layout.adapter().parameters()) {
    if (!parameter.name.ends_with(".lora_A.weight")) continue;
    const std::span<float> a(values.data() + parameter.offset, static_cast<std::size_t>(parameter.size));
    FillNormal(StreamKey({0x6c6f7261ULL, run_seed, PromptId(parameter.name)}), 0, a);
    for (float& value : a) value /= static_cast<float>(layout.lora().rank);
  }
  return values;
}

}  // namespace spotlight
