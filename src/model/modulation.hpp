// What a pass knows of the noise level: the time embedding, and the shifts, scales and gates made from it.
//
// They depend on sigma alone. With a fixed schedule and frozen modulation weights they are constants of the whole run:
// a ModulationTable holds them for each sigma, and a third of a Qwen-Image (6.8 of 20.4 G parameters) need not be
// resident. Both ways run the same matrix products, of which each row depends on its own sigma only: the same bits.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "kernels/buffer.hpp"
#include "model/dit_layout.hpp"
#include "model/weight_storage.hpp"

namespace spotlight {

// U noise levels: e = sinusoid(sigma), temb = linear_2(SiLU(linear_1(e))).
struct TimeEmbedding {
  Buffer sigma;                  // [U]
  Buffer sinusoid;               // [U, 256]
  Buffer time_hidden, time_act;  // [U, d] before and after SiLU
  Buffer temb, temb_act;         // [U, d]; every modulation starts with SiLU(temb)

  void Forward(const DitLayout& layout, const PartMemory& time, std::span<const float> sigmas, AdaptedLinearOps& ops);
};

class ModulationTable {
 public:
  // One row for each of `sigmas`, in `node`. If no rank of the node has the table, reads the weights part by part, as
  // `precision` stores them: one part is in memory at a time. UserError from `weights`.
  ModulationTable(const DitLayout& layout, const TensorSource& weights, Precision precision,
                  const std::vector<float>& sigmas, NodeMemory& node);

  int Row(float sigma) const;                          // SPOTLIGHT_REQUIREs that the table has it
  const float* Block(int block, Stream stream) const;  // [sigmas, 6d]
  const float* Final() const;                          // [sigmas, 2d]
  Index size() const { return static_cast<Index>(rows_.size()); }
  bool Intact() const { return blob_.Intact(); }

 private:
  Index Offset(int block, Stream stream) const;
  void Compute(const DitLayout& layout, const TensorSource& weights, Precision precision, std::span<const float> levels,
               float* values) const;

  Index width_;
  int blocks_;
  std::map<float, int> rows_;
  NodeBlob blob_;
  Buffer values_;  // a view of the blob
};

// The rows of a table that one pass needs, at the same place in every pass: launches that were recorded find those of
// another noise level there.
class PassModulation {
 public:
  // One row a level; SPOTLIGHT_REQUIREs that the table has it.
  void Gather(const DitLayout& layout, const ModulationTable& table, const std::vector<float>& levels);

  const float* Block(int block, Stream stream) const;  // [levels, 6d]
  const float* Final() const;                          // [levels, 2d]

 private:
  Index width_ = 0, levels_ = 0;
  int blocks_ = 0;
  Buffer values_;
};

}  // namespace spotlight
