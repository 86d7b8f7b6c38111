// LoRA adapters in the two forms that users load.
//
//   pytorch_lora_weights.safetensors   diffusers: keys transformer.<module>.lora_{A,B}.weight
//   adapter_model.safetensors, adapter_config.json   PEFT: keys base_model.model.<module>.lora_{A,B}.weight
// The scale is not in the tensors of either form: the caller folds alpha / r into B, and the metadata
// written here says alpha = r, so that loaders that read it and loaders that do not agree.
#pragma once

#include <string>
#include <vector>

#include "base/tensor.hpp"

namespace spotlight {

// `adapter`: names <module>.lora_A.weight [r, in] and <module>.lora_B.weight [out, r], scale folded. Writes the three
// files into `folder`, which must exist. `base_model`: path or name for adapter_config.json. FileError.
void WriteLoraFiles(const std::string& folder, const WeightMap& adapter, int rank,
                    const std::vector<std::string>& targets, const std::string& base_model);

}  // namespace spotlight
