#include "model/model_weights.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/prompt.hpp"
#include "base/random.hpp"

namespace spotlight {

ModelWeights::ModelWeights(std::shared_ptr<const DitLayout> layout, std::shared_ptr<const TensorSource> base,
                           Precision precision, const std::vector<float>& sigmas, std::size_t versions)
    : layout_(std::move(layout)), source_(std::move(base)), precision_(precision), versions_(versions) {
  if (!lora() && sigmas.empty()) return;
  if (!sigmas.empty()) modulation_ = std::make_unique<ModulationTable>(*layout_, *source_, precision, sigmas);
  LoadBase();
}

void ModelWeights::LoadBase() {
  base_ = std::make_unique<WeightStorage>(*layout_, precision_);
  base_->Load(*source_, 0, layout_->used_parts(modulation_ != nullptr));
  base_parameters_ = OverBase(nullptr, nullptr);
}

std::unique_ptr<Parameters> ModelWeights::OverBase(const float* adapter, float* gradient) const {
  auto parameters = std::make_unique<ResidentParameters>(*layout_, *base_, adapter, gradient);
  parameters->modulation = modulation_.get();
  return parameters;
}

void ModelWeights::Put(const WeightKey& key, std::span<const float> trained) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(trained.size()) == trained_layout().size(), "weights of another layout");
  entries_.remove_if([&](const Entry& entry) { return entry.key == key; });
  if (entries_.size() < versions_) {
    entries_.emplace_front();
  } else {
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));  // the oldest one's memory
  }
  Entry& entry = entries_.front();
  entry.key = key;
  if (lora()) {
    entry.adapter.Resize(static_cast<Index>(trained.size()));
    entry.adapter.CopyFromHost(trained);
    entry.parameters = OverBase(entry.adapter.data(), nullptr);
    return;
  }
  if (entry.storage == nullptr) entry.storage = std::make_unique<WeightStorage>(*layout_, precision_);
  entry.storage->Assign(trained);
  entry.parameters = std::make_unique<ResidentParameters>(*layout_, *entry.storage);
}

bool ModelWeights::Has(const WeightKey& key) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
}

Parameters& ModelWeights::Of(const WeightKey& key) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  SPOTLIGHT_REQUIRE(found != entries_.end(), "weight version is not here");
  return *found->parameters;
}

Parameters& ModelWeights::Base() {
  if (base_parameters_ == nullptr) LoadBase();
  return *base_parameters_;
}

std::unique_ptr<Parameters> ModelWeights::WithAdapter(const float* adapter, float* gradient) const {
  SPOTLIGHT_REQUIRE(lora(), "there is no adapter");
  return OverBase(adapter, gradient);
}

std::vector<float> InitialAdapter(const DitLayout& layout, std::uint64_t run_seed) {
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
