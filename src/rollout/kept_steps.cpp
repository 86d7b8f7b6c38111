#include "rollout/kept_steps.hpp"

#include "base/error.hpp"

namespace spotlight {

void KeptSteps::Begin(Index batch, Index size, Index window, const std::vector<DenoiseState>& states) {
  batch_ = static_cast<std::size_t>(batch);
  size_ = size;
  latents_.width = size;
  log_probs_.width = 1;
  for (Series* series : {&latents_, &log_probs_}) {
    series->started = series->added = 0;
    series->values.assign(batch_, {});
  }
  for (std::size_t b = 0; b < states.size(); ++b) {
    latents_.values[b] = states[b].trajectory;
    log_probs_.values[b] = states[b].log_probs;
  }
  under_way_ = {};
  Reserve(latents_, static_cast<std::size_t>(window > 0 ? window + 1 : 0));
  Reserve(log_probs_, static_cast<std::size_t>(window));
  if (newest_copy_ == nullptr) newest_copy_ = MakeHostCopy();
  newest_copy_->Reserve(batch * size);
}

void KeptSteps::Reserve(Series& series, std::size_t copies) {
  while (series.copies.size() < copies) series.copies.push_back(MakeHostCopy());
  for (std::size_t i = 0; i < copies; ++i) series.copies[i]->Reserve(static_cast<Index>(batch_) * series.width);
}

void KeptSteps::KeepLatents(const Buffer& x) { Keep(latents_, x); }

void KeptSteps::KeepLogProbs(const Buffer& log_prob) { Keep(log_probs_, log_prob); }

void KeptSteps::Keep(Series& series, const Buffer& rows) {
  SPOTLIGHT_REQUIRE(series.started < series.copies.size(), "more steps than the window has");
  series.copies[series.started++]->Start(rows.data(), static_cast<Index>(batch_) * series.width);
}

void KeptSteps::AtBorder(std::uint32_t steps, const Buffer& x) {
  steps_ = steps;
  newest_ = &x;
}

void KeptSteps::Start() {
  SPOTLIGHT_REQUIRE(!under_way_.is, "the states of an earlier border are under way");
  newest_copy_->Start(newest_->data(), static_cast<Index>(batch_) * size_);
  under_way_ = {true, steps_, latents_.started, log_probs_.started};
}

// The newest latents are copied last.
bool KeptSteps::Ready() { return newest_copy_->Done(); }

std::vector<DenoiseState> KeptSteps::Take() {
  SPOTLIGHT_REQUIRE(under_way_.is, "nothing is under way");
  SPOTLIGHT_REQUIRE(latents_.added <= under_way_.latents, "steps after the states have been added to them");
  AddUpTo(latents_, under_way_.latents);
  AddUpTo(log_probs_, under_way_.log_probs);
  const std::span<const float> newest = newest_copy_->Values();
  std::vector<DenoiseState> states(batch_);
  for (std::size_t b = 0; b < batch_; ++b) {
    const auto row = newest.begin() + static_cast<Index>(b) * size_;
    states[b] = {under_way_.steps, {row, row + size_}, latents_.values[b], log_probs_.values[b]};
  }
  under_way_.is = false;
  return states;
}

const std::vector<float>& KeptSteps::Trajectory(std::size_t request) {
  AddUpTo(latents_, latents_.started);
  return latents_.values[request];
}

const std::vector<float>& KeptSteps::LogProbs(std::size_t request) {
  AddUpTo(log_probs_, log_probs_.started);
  return log_probs_.values[request];
}

void KeptSteps::AddUpTo(Series& series, std::size_t copies) {
  for (; series.added < copies; ++series.added) {
    const std::span<const float> rows = series.copies[series.added]->Values();
    for (std::size_t b = 0; b < batch_; ++b) {
      const auto row = rows.begin() + static_cast<Index>(b) * series.width;
      series.values[b].insert(series.values[b].end(), row, row + series.width);
    }
  }
}

}  // namespace spotlight
