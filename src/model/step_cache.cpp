#include "model/step_cache.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "kernels/step_cache.hpp"

namespace spotlight {

void StepCache::Start(Index batch) {
  const auto samples = static_cast<std::size_t>(batch);
  computed_.assign(samples, 0);
  distance_.assign(samples, 0.0);
  changes_.assign(samples, std::numeric_limits<double>::quiet_NaN());
  started_ = false;
}

float* StepCache::Indicator(Index size) {
  indicator_.Resize(size);
  return indicator_.data();
}

void StepCache::Measure(TokenShards& shards, Index width) {
  const Index own = shards.rows(Stream::kImage).rows();
  const TokenRows all = shards.all_rows(Stream::kImage);
  RowChanges(own, width, indicator_.data(), last_indicator_.data(), sums_.data());
  const bool alone = shards.ranks() == 1;
  if (!alone) {
    shards.Exchange({{TokenShards::Transfer::Kind::kGather, Stream::kImage, 2, 0, sums_.data(), all_sums_.data()}});
  }
  std::vector<float> host(static_cast<std::size_t>(all.rows() * 2));
  (alone ? sums_ : all_sums_).CopyToHost(host);
  for (Index b = 0; b < all.batch; ++b) {
    double change = 0, size = 0;
    for (auto row = static_cast<std::size_t>(all.first[b]); row < static_cast<std::size_t>(all.first[b + 1]); ++row) {
      change += host[2 * row];
      size += host[2 * row + 1];
    }
    changes_[static_cast<std::size_t>(b)] = change / size;
  }
}

bool StepCache::WantsComputation(std::size_t sample) {
  // Both conditions are also true of NaN.
  if (settings_.gate == Gate::kFirstBlock) return !(changes_[sample] <= settings_.threshold);
  double rescaled = 0;
  for (const double coefficient : settings_.polynomial) rescaled = rescaled * changes_[sample] + coefficient;
  distance_[sample] += std::abs(rescaled);
  return !(distance_[sample] < settings_.threshold);
}

std::vector<Index> StepCache::Choose(TokenShards& shards, Index width, Compute compute) {
  SPOTLIGHT_REQUIRE(shards.rows(Stream::kImage).batch == static_cast<Index>(computed_.size()), "the batch of Start");
  const bool gated = settings_.gate != Gate::kNone;
  SPOTLIGHT_REQUIRE(started_ ? gated || compute != Compute::kGated : compute != Compute::kNobody,
                    "a gate, and something to reuse");
  if (gated) {
    // Also where nothing is compared yet: later steps make no memory.
    const Index own = shards.rows(Stream::kImage).rows();
    last_indicator_.Resize(own * width);
    sums_.Resize(own * 2);
    if (shards.ranks() > 1) all_sums_.Resize(shards.all_rows(Stream::kImage).rows() * 2);
  }
  if (gated && started_) Measure(shards, width);
  std::vector<Index> chosen;
  for (std::size_t b = 0; b < computed_.size(); ++b) {
    const bool wanted = gated && started_ && WantsComputation(b);
    if (compute == Compute::kNobody || (compute == Compute::kGated && started_ && !wanted)) continue;
    distance_[b] = 0;
    ++computed_[b];
    chosen.push_back(static_cast<Index>(b));
  }
  if (settings_.gate == Gate::kInput || (gated && chosen.size() == computed_.size())) {
    std::swap(indicator_, last_indicator_);
  } else if (gated) {
    const TokenRows rows = shards.rows(Stream::kImage);
    for (const Index b : chosen) {
      const Index first = rows.first[b] * width;
      CopyFloats(indicator_.data() + first, last_indicator_.data() + first, rows.tokens(b) * width);
    }
  }
  started_ = true;
  reused_all_ = chosen.empty();
  return chosen;
}

void StepCache::Before(const std::vector<Index>& chosen, Buffer& image) {
  if (chosen.empty()) {
    std::swap(before_, image);
    return;
  }
  before_.Resize(image.size());
  CopyFloats(image.data(), before_.data(), image.size());
}

void StepCache::After(const TokenRows& rows, Index width, const std::vector<Index>& chosen, Buffer& image) {
  if (chosen.size() == computed_.size()) {
    residual_.Resize(before_.size());
    Subtract(before_.size(), image.data(), before_.data(), residual_.data());
    return;
  }
  std::vector<std::int64_t> place(static_cast<std::size_t>(rows.rows()), -1);
  std::int64_t next = 0;
  for (const Index b : chosen) {
    for (auto row = static_cast<std::size_t>(rows.first[b]); row < static_cast<std::size_t>(rows.first[b + 1]); ++row) {
      place[row] = next++;
    }
  }
  MergeRows(rows.rows(), width, place.data(), before_.data(), image.data(), residual_.data(), before_.data());
  std::swap(before_, image);
}

}  // namespace spotlight
