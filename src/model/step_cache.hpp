// What a denoising run keeps of one step, so that a later one need not compute the transformer's blocks.
//
// Blocks change the image stream slowly from step to step. A pass that computes the blocks of a sample keeps the
// residual r = (stream after the blocks) - (stream before them); one that does not takes stream before + r and goes on
// with the final norm, at its own noise level. Which samples a pass computes is either given or gated by how much
// something cheap has changed, as a relative L1 distance D = sum |x - x'| / sum |x'| over the sample's tokens:
//   kInput       x: the modulated input of the first block, x' that of the step before. A sample is computed when the
//                sum of |P(D)| since its last computation reaches the threshold. [TeaCache, arXiv 2411.19108]
//   kFirstBlock  x: the first block's residual, x' that of the last computed step. Computed when D > threshold. The
//                first block always runs, and r is of the blocks after it. [diffusers 0.42, FirstBlockCache]
// A sample that has nothing kept, or whose D is no number, is computed. Each sample is gated by itself, a guidance
// branch being one. D is summed over tokens in one order on every rank of a group, so that all decide alike, and as one
// rank alone does; a sample's result depends neither on its batch nor on the group.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/buffer.hpp"
#include "model/token_shards.hpp"

namespace spotlight {

class StepCache {
 public:
  enum class Gate { kNone, kInput, kFirstBlock };
  // Which samples' blocks a pass computes.
  enum class Compute { kAll, kGated, kNobody };
  using Polynomial = std::array<double, 5>;  // P, highest power first

  struct Settings {
    Gate gate = Gate::kNone;
    double threshold = 0;
    Polynomial polynomial = {0, 0, 0, 1, 0};
  };
  explicit StepCache(const Settings& settings) : settings_(settings) {}

  // Before the first pass of a batch of `batch` samples (guidance branches).
  void Start(Index batch);

  // [B] passes since Start that computed a sample's blocks.
  const std::vector<int>& computed() const { return computed_; }
  // [B] D of the last pass; NaN where there was nothing to compare, and without a gate.
  const std::vector<double>& changes() const { return changes_; }
  // Whether the last pass computed nobody.
  bool reused_all() const { return reused_all_; }
  // [own rows, d] r after the last pass.
  const Buffer& residual() const { return residual_; }

  // The three stages of a pass, for Dit. Collective over the group of `shards`, which has the whole batch.
  Gate gate() const { return settings_.gate; }
  // Memory for x, [own rows, d].
  float* Indicator(Index size);
  // Which samples are computed, in ascending order. kNobody: only after a pass that has computed all.
  std::vector<Index> Choose(TokenShards& shards, Index width, Compute compute);
  // image [own rows, d]: the stream before the blocks. Its content is undefined afterwards if nobody is computed.
  void Before(const std::vector<Index>& chosen, Buffer& image);
  // image: rows of the `chosen` samples after the blocks -> the whole batch [own rows, d].
  void After(const TokenRows& rows, Index width, const std::vector<Index>& chosen, Buffer& image);

 private:
  bool WantsComputation(std::size_t sample);
  void Measure(TokenShards& shards, Index width);

  Settings settings_;
  std::vector<int> computed_;
  std::vector<double> changes_;
  std::vector<double> distance_;  // [B] kInput: sum of |P(D)| since the last computation
  bool started_ = false;          // a pass has been made since Start
  bool reused_all_ = false;
  Buffer indicator_, last_indicator_;
  Buffer before_, residual_;
  Buffer sums_, all_sums_;  // [own rows, 2], [all rows, 2]
};

// How a pass uses a cache; no cache: all is computed and nothing is kept.
struct StepReuse {
  StepCache* cache = nullptr;
  StepCache::Compute compute = StepCache::Compute::kAll;
};

}  // namespace spotlight
