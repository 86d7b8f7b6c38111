// What PEFT's LoraConfig (github.com/huggingface/peft, tuners/lora/config.py) says about an adapter's tensors: the
// scale alpha / r of each module, and whether they are plain LoRA at all. Private to io/.
//
// The fields come from adapter_config.json or from diffusers' "lora_adapter_metadata"; both hold the same ones.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace spotlight {

struct PeftConfig {
  // A pattern is a regular expression that must match the module's whole name or its end after a dot.
  using Patterns = std::vector<std::pair<std::string, double>>;

  std::string place;  // the file, for messages
  double rank = 8;    // PEFT's defaults
  double alpha = 8;
  Patterns rank_pattern, alpha_pattern;

  double RankOf(const std::string& module) const;
  double AlphaOf(const std::string& module) const;
};

// `fields`: LoraConfig's, an object; unknown ones are ignored. UserError for DoRA, rsLoRA, LoKr and all else that makes
// the layer other than W x + b + (alpha / r) B A x with the base's own W.
PeftConfig ParsePeftConfig(const nlohmann::json& fields, const std::string& place);

}  // namespace spotlight
