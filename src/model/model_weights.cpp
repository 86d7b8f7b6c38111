#include "model/model_weights.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/prompt.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr std::string_view kVersionPrefix = "weights-";

// In the node's memory.
std::string NameOf(const WeightKey& key) {
  std::string name(kVersionPrefix);
  name += std::to_string(key.version);
  if (key.ema) name += "-ema";
  return name;
}

}  // namespace

ModelWeights::ModelWeights(std::shared_ptr<const DitLayout> layout, std::shared_ptr<const TensorSource> base,
                           Precision precision, const std::vector<float>& sigmas, std::size_t versions,
                           NodeMemory* node)
    : layout_(std::move(layout)),
      source_(std::move(base)),
      precision_(precision),
      versions_(versions),
      node_(node == nullptr ? own_memory_ : *node) {
  SPOTLIGHT_REQUIRE(versions >= 1, "versions");
  if (!lora() && sigmas.empty()) return;
  if (!sigmas.empty()) modulation_ = std::make_unique<ModulationTable>(*layout_, *source_, precision, sigmas, node_);
  LoadBase();
}

void ModelWeights::LoadBase() {
  const int parts = layout_->used_parts(modulation_ != nullptr);
  std::string key = precision_ == Precision::kBf16 ? "base-bf16-" : "base-fp32-";
  key += std::to_string(parts);
  base_ = std::make_unique<WeightStorage>(*layout_, precision_);
  base_->Share(node_, key, 0, parts, [&](WeightStorage& storage) { storage.Load(*source_, 0, parts); });
  base_parameters_ = OverBase(nullptr, nullptr);
}

std::unique_ptr<Parameters> ModelWeights::OverBase(const float* adapter, float* gradient) const {
  auto parameters = std::make_unique<ResidentParameters>(*layout_, *base_, adapter, gradient);
  parameters->modulation = modulation_.get();
  return parameters;
}

void ModelWeights::Load(const WeightKey& key, const Fetch& fetch, const std::function<void()>& discard) {
  if (Has(key)) return;
  if (entries_.size() == versions_) entries_.pop_back();  // first: old and new need not fit together
  Entry entry = MakeEntry(key, fetch);
  if (!IntactEntry(entry)) {
    LogWarning(NameOf(key) + ": the copy that this node's ranks share is damaged; it is fetched again");
    node_.Drop(NameOf(key));
    if (discard) discard();
    entry = MakeEntry(key, fetch);
    SPOTLIGHT_REQUIRE(IntactEntry(entry), NameOf(key) + " is damaged again");
  }
  entries_.push_front(std::move(entry));
  DropOldNames(key.version);
}

ModelWeights::Entry ModelWeights::MakeEntry(const WeightKey& key, const Fetch& fetch) {
  const auto size = static_cast<std::size_t>(trained_layout().size());
  Entry entry{.key = key};
  if (lora()) {
    const auto floats = [&](std::span<std::byte> memory) {
      return std::span(reinterpret_cast<float*>(memory.data()), size);
    };
    entry.blob = node_.Get(NameOf(key), size * sizeof(float), [&](auto memory) { fetch(floats(memory)); });
    entry.adapter = Buffer::Reading(floats(entry.blob.bytes()));
    entry.parameters = OverBase(entry.adapter.data(), nullptr);
  } else {
    const int parts = static_cast<int>(layout_->parts().size());
    entry.storage = std::make_unique<WeightStorage>(*layout_, precision_);
    entry.storage->Share(node_, NameOf(key), 0, parts, [&](WeightStorage& storage) {
      std::vector<float> values(size);
      fetch(values);
      storage.Assign(values);
    });
    entry.parameters = std::make_unique<ResidentParameters>(*layout_, *entry.storage);
  }
  return entry;
}

bool ModelWeights::IntactEntry(const Entry& entry) {
  return entry.blob.Intact() && (entry.storage == nullptr || entry.storage->Intact());
}

void ModelWeights::Put(const WeightKey& key, std::span<const float> trained) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(trained.size()) == trained_layout().size(), "weights of another layout");
  Load(key, [&](std::span<float> values) { std::copy(trained.begin(), trained.end(), values.begin()); });
}

// Not what this rank itself gives up: those that had an old version may all have been lost.
void ModelWeights::DropOldNames(std::uint64_t version) const {
  for (const std::string& name : node_.Keys()) {
    if (!name.starts_with(kVersionPrefix)) continue;
    if (std::stoull(name.substr(kVersionPrefix.size())) + 1 < version) node_.Drop(name);
  }
}

bool ModelWeights::Intact() const {
  return (modulation_ == nullptr || modulation_->Intact()) && (base_ == nullptr || base_->Intact()) &&
         std::all_of(entries_.begin(), entries_.end(), IntactEntry);
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
