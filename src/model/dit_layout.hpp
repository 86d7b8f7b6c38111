// The parameter layout of the Qwen-Image transformer: checkpoint names, in an order that makes the projections which
// read the same input (q, k, v) neighbours, so that they run as one matrix product.
//
// Parts, in the order of their numbers and of the flat base array:
//   0                  stem: img_in, txt_in, txt_norm, proj_out
//   1 .. L             blocks: attention, MLPs
//   L + 1              time: time embedding and norm_out
//   L + 2 .. 2 L + 1   modulation of the blocks (img_mod, txt_mod)
// What depends on sigma alone comes last: the parts from L + 1 on need not be resident where it is frozen.
#pragma once

#include <string>
#include <vector>

#include "base/transformer_config.hpp"
#include "model/adapted_linear.hpp"
#include "model/parameters.hpp"

namespace spotlight {

// LoRA on the linear layers of all blocks whose name ends in one of `targets`; rank 0: none.
struct LoraSettings {
  int rank = 0;
  double alpha = 0;
  std::vector<std::string> targets;
};

// Parameters of one stream (image or text) of a block; modulation: of the modulation part, the rest: of the block's.
struct StreamLayout {
  AdaptedLinear modulation;  // d -> 6d: shift1, scale1, gate1, shift2, scale2, gate2
  AdaptedLinear qkv;         // d -> 3d, three projections side by side
  Index norm_q = 0, norm_k = 0;
  AdaptedLinear out;  // d -> d
  AdaptedLinear mlp_up, mlp_down;
};

struct BlockLayout {
  StreamLayout image, text;
};

class DitLayout {
 public:
  DitLayout(const TransformerConfig& config, const LoraSettings& lora);

  const TransformerConfig& config() const { return config_; }
  const LoraSettings& lora() const { return lora_; }
  const ParameterLayout& base() const { return base_; }
  const ParameterLayout& adapter() const { return adapter_; }

  static constexpr int kStem = 0;
  int block_part(int block) const { return 1 + block; }
  int time_part() const { return 1 + config_.num_layers; }
  int modulation_part(int block) const { return 2 + config_.num_layers + block; }
  const std::vector<PartLayout>& parts() const { return parts_; }
  // Parts that a pass needs with and without a modulation table: the first ones.
  int used_parts(bool modulation_table) const {
    return modulation_table ? time_part() : static_cast<int>(parts_.size());
  }
  // Parts in the order in which Backward is done with them.
  std::vector<int> backward_order() const;

  AdaptedLinear time_in, time_out, image_in, text_in, norm_out, proj_out;
  Index text_norm = 0;
  std::vector<BlockLayout> blocks;

 private:
  class PartBuilder;

  StreamLayout BlockStream(PartBuilder& part, const std::string& prefix, bool image) const;

  TransformerConfig config_;
  LoraSettings lora_;
  ParameterLayout base_, adapter_;
  std::vector<PartLayout> parts_;
};

}  // namespace spotlight
