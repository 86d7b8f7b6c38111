#include "train/trained_weights.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "kernels/host_view.hpp"
#include "kernels/optimizer.hpp"

namespace spotlight {
namespace {

std::size_t Place(int part) { return static_cast<std::size_t>(part); }

}  // namespace

// Working memory of a pass, part by part.
class TrainedWeights::PassParameters : public Parameters {
 public:
  explicit PassParameters(TrainedWeights& trained) : trained_(trained) {
    const DitLayout& layout = *trained.layout_;
    const int parts = static_cast<int>(layout.parts().size());
    if (trained.model_.lora()) {
      base_ = trained.model_.WithAdapter(nullptr, nullptr);
      modulation = base_->modulation;
      lora_scale = base_->lora_scale;
    } else if (!Sharded() && !UsesMaster()) {
      storage_.emplace_back(layout, trained.model_.precision());
      storage_[0].Allocate(0, parts);
    } else if (Sharded()) {
      for (int kind = 0; kind < kKinds; ++kind) storage_.emplace_back(layout, trained.model_.precision());
    }
  }

  PartMemory Use(int part) override {
    PartMemory memory;
    const PartLayout& layout = trained_.layout_->parts()[Place(part)];
    if (trained_.model_.lora()) {
      memory = base_->Use(part);
      memory.adapter =
          (trained_.alone() ? trained_.weights_.data() : trained_.working_adapter_.data()) + layout.adapter_offset;
      memory.adapter_gradient = PassGradient(part, layout.adapter);
      return memory;
    }
    if (UsesMaster()) {
      memory.vectors = trained_.weights_.data() + layout.offset;
      memory.matrices = {.fp32 = memory.vectors + layout.vectors};
    } else if (Sharded()) {
      memory = GatheredPart(part);
    } else {
      memory = storage_[0].Part(part);
    }
    memory.vectors_gradient = PassGradient(part, layout.size());
    memory.matrices_gradient = memory.vectors_gradient + layout.vectors;
    return memory;
  }

  void GradientDone(int part) override {
    const PartLayout& layout = trained_.layout_->parts()[Place(part)];
    // A trainer that skips the pass comes here without a Use.
    float* values = PassGradient(part, trained_.model_.lora() ? layout.adapter : layout.size());
    for (const Range& range : trained_.RangesOf(part)) {
      trained_.SumShard(values, range.size);
      const ShareRange own = trained_.Own(range);
      Axpy(own.size(), 1.0f, values + own.begin, trained_.gradient_.data() + range.own_offset);
      values += range.size;
    }
    partial_[Kind(part)].Zero();
  }

  // The working copy follows the master weights.
  void Refresh() {
    if (trained_.model_.lora() || UsesMaster()) return;
    for (int& held : held_) held = -1;
    if (Sharded()) return;
    for (int part = 0; part < static_cast<int>(trained_.layout_->parts().size()); ++part) Fill(part, storage_[0]);
  }

  bool Sharded() const { return !trained_.model_.lora() && trained_.config_.shard_weights && !trained_.alone(); }

 private:
  static constexpr int kKinds = 4;  // stem, block, time, modulation of a block: of each kind one is in use at a time

  std::size_t Kind(int part) const {
    const DitLayout& layout = *trained_.layout_;
    if (part == DitLayout::kStem) return 0;
    if (part < layout.time_part()) return 1;
    return part == layout.time_part() ? 2 : 3;
  }
  // One trainer in fp32 computes with its master weights.
  bool UsesMaster() const { return trained_.alone() && trained_.model_.precision() == Precision::kFp32; }

  // Where Backward adds: a part's sum of this pass, which the trainers then add up. One trainer alone has it, too: a
  // layer adds its rows in several pieces, and straight into the gradient their order would be another.
  float* PassGradient(int part, Index size) {
    Buffer& sum = partial_[Kind(part)];
    if (sum.size() != size) {
      sum.Resize(size);
      sum.Zero();
    }
    return sum.data();
  }

  PartMemory GatheredPart(int part) {
    const std::size_t kind = Kind(part);
    WeightStorage& storage = storage_[kind];
    if (held_[kind] != part) {
      storage.Allocate(part, part + 1);
      Fill(part, storage);
      held_[kind] = part;
    }
    return storage.Part(part);
  }

  // A part of the working copy from the shares of all trainers.
  void Fill(int part, WeightStorage& storage) {
    const WeightStorage::Target to = storage.Writable(part);
    const std::span<const Range> ranges = trained_.RangesOf(part);
    const auto fill = [&](const Range& range, auto target) {
      const ShareRange own = trained_.Own(range);
      const float* from = trained_.weights_.data() + range.own_offset;
      if constexpr (std::is_same_v<decltype(target), std::span<float>>) {
        CopyFloats(from, target.data() + own.begin, own.size());
      } else {
        RoundToBfloat16(own.size(), from, target.data() + own.begin);
      }
      if (!trained_.alone()) trained_.GatherShards(target.data(), std::ssize(target));
    };
    fill(ranges[0], to.vectors);
    if (to.matrices_bf16.empty()) {
      fill(ranges[1], to.matrices);
    } else {
      fill(ranges[1], to.matrices_bf16);
    }
  }

  TrainedWeights& trained_;
  std::unique_ptr<Parameters> base_;     // with an adapter
  std::vector<WeightStorage> storage_;   // of all parts, or one of each kind
  int held_[kKinds] = {-1, -1, -1, -1};  // the part that storage_[kind] holds
  Buffer partial_[kKinds];
};

TrainedWeights::TrainedWeights(const Config& config, std::shared_ptr<const DitLayout> layout, const ModelWeights& model,
                               TrainerGroup& group)
    : config_(config.train), layout_(std::move(layout)), model_(model), group_(group) {
  Index own = 0;
  const auto add = [&](Index offset, Index size) {
    ranges_.push_back({offset, size, own});
    own += Own(ranges_.back()).size();
  };
  for (const PartLayout& part : layout_->parts()) {
    if (model_.lora()) {
      add(part.adapter_offset, part.adapter);
    } else {
      add(part.offset, part.vectors);
      add(part.offset + part.vectors, part.matrices);
    }
  }
  for (Buffer* buffer : {&weights_, &gradient_, &first_moment_, &second_moment_}) buffer->Resize(own);
  if (model_.lora() && !alone()) working_adapter_.Resize(layout_->adapter().size());
  if (group.device() != nullptr) device_ = std::make_unique<ShardCollectives>(*group.device());
  parameters_ = std::make_unique<PassParameters>(*this);
}

TrainedWeights::~TrainedWeights() = default;

std::span<const TrainedWeights::Range> TrainedWeights::RangesOf(int part) const {
  const std::size_t each = model_.lora() ? 1 : 2;
  return std::span(ranges_).subspan(Place(part) * each, each);
}

OptimizerState TrainedWeights::InitialState(const Config& config, std::vector<float> weights) {
  OptimizerState state;
  state.first_moment.assign(weights.size(), 0.0f);
  state.second_moment.assign(weights.size(), 0.0f);
  if (config.train.ema_decay > 0) state.ema = weights;
  state.weights = std::move(weights);
  return state;
}

void TrainedWeights::TakeShares(const std::vector<float>& whole, Buffer& own) const {
  for (const Range& range : ranges_) {
    const ShareRange share = Own(range);
    own.Fill(range.own_offset, share.size(), [&](std::span<float> to) {
      std::copy_n(whole.begin() + range.offset + share.begin, share.size(), to.begin());
    });
  }
}

void TrainedWeights::SetState(const OptimizerState& state) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(state.weights.size()) == model_.trained_layout().size(), "another layout");
  TakeShares(state.weights, weights_);
  TakeShares(state.first_moment, first_moment_);
  TakeShares(state.second_moment, second_moment_);
  if (!state.ema.empty()) {
    ema_.Resize(weights_.size());
    TakeShares(state.ema, ema_);
  }
  updates_ = state.updates;
  RefreshWorkingCopy();
}

void TrainedWeights::SumShard(float* values, Index size) {
  if (alone()) return;
  if (device_) return device_->SumShardInOrder(values, size);
  group_.SumShardInOrder(HostView(values, size, HostAccess::kReadAndWrite).span());
}

template <typename T>
void TrainedWeights::GatherShards(T* values, Index size) {
  if (device_) return device_->GatherShards(values, size);
  group_.GatherShards(HostView(values, size, HostAccess::kReadAndWrite).span());
}

// Range by range, so that little more than a shard needs room on those that keep nothing.
std::vector<float> TrainedWeights::GatherOnDevice(const Buffer& own, bool keep) const {
  std::vector<float> whole;
  if (keep) whole.resize(static_cast<std::size_t>(model_.trained_layout().size()));
  Buffer passing;
  for (const Range& range : ranges_) {
    const ShareRange share = Own(range);
    passing.Resize(range.size);
    CopyFloats(own.data() + range.own_offset, passing.data() + share.begin, share.size());
    device_->GatherShards(passing.data(), range.size);
    if (keep)
      passing.CopyToHost(
          std::span(whole).subspan(static_cast<std::size_t>(range.offset), static_cast<std::size_t>(range.size)));
  }
  return whole;
}

std::vector<float> TrainedWeights::Gather(const Buffer& own, bool keep) const {
  if (device_ && own.size() > 0) return GatherOnDevice(own, keep);
  std::vector<float> shares(static_cast<std::size_t>(own.size()));
  own.CopyToHost(shares);
  if (alone() || own.size() == 0) return shares;
  std::vector<float> whole, passing;
  if (keep) whole.resize(static_cast<std::size_t>(model_.trained_layout().size()));
  for (const Range& range : ranges_) {
    const ShareRange share = Own(range);
    if (!keep) passing.resize(static_cast<std::size_t>(range.size));
    const std::span<float> values(keep ? whole.data() + range.offset : passing.data(),
                                  static_cast<std::size_t>(range.size));
    std::copy_n(shares.begin() + range.own_offset, share.size(), values.begin() + share.begin);
    group_.GatherShards(values);
  }
  return whole;
}

OptimizerState TrainedWeights::State(bool keep) const {
  return {Gather(weights_, keep), Gather(first_moment_, keep), Gather(second_moment_, keep), Gather(ema_, keep),
          updates_};
}

std::vector<float> TrainedWeights::Weights(bool keep) const { return Gather(weights_, keep); }
std::vector<float> TrainedWeights::EmaWeights(bool keep) const { return Gather(ema_, keep); }

Parameters& TrainedWeights::parameters() { return *parameters_; }

void TrainedWeights::SkipPass() {
  SPOTLIGHT_REQUIRE(!parameters_->Sharded(), "with shared-out weights every trainer makes every pass");
  if (alone()) return;
  for (const int part : layout_->backward_order()) {
    if (part < layout_->used_parts(parameters_->modulation != nullptr)) parameters_->GradientDone(part);
  }
}

void TrainedWeights::RefreshWorkingCopy() {
  if (working_adapter_.size() > 0) {
    for (const Range& range : ranges_) {
      const ShareRange own = Own(range);
      float* values = working_adapter_.data() + range.offset;
      CopyFloats(weights_.data() + range.own_offset, values + own.begin, own.size());
      GatherShards(values, range.size);
    }
  }
  parameters_->Refresh();
}

double TrainedWeights::Update() {
  const double square = SquaredNorm(gradient_.size(), gradient_.data());
  const double norm = std::sqrt(alone() ? square : group_.SumDouble(square));
  const bool clip = config_.grad_norm > 0 && norm > config_.grad_norm;
  const double scale = clip ? config_.grad_norm / (norm + 1e-6) : 1.0;  // torch.nn.utils.clip_grad_norm_'s form
  const AdamWSettings settings{config_.lr, config_.beta1, config_.beta2, config_.eps, config_.weight_decay};
  AdamWUpdate(settings, ++updates_, weights_.size(), static_cast<float>(scale), gradient_.data(), weights_.data(),
              first_moment_.data(), second_moment_.data());
  if (ema_.size() > 0) {
    // A young average follows closely: decay (1 + n) / (10 + n) up to the asked one (Flow-GRPO's ema.py rule).
    const double n = static_cast<double>(updates_);
    EmaUpdate(weights_.size(), std::min(config_.ema_decay, (1 + n) / (10 + n)), weights_.data(), ema_.data());
  }
  RefreshWorkingCopy();
  return norm;
}

}  // namespace spotlight
