// Writes trained weights in the forms that diffusers and PEFT load.
//
//   full weights   <folder>/transformer/{config.json, diffusion_pytorch_model.safetensors}
//   LoRA           <folder>/lora/{pytorch_lora_weights.safetensors, adapter_config.json, adapter_model.safetensors}
//   both           <folder>/README.md, a model card
// LoRA: alpha / r is folded into B and the metadata says alpha = r, so that every loader gives the same model.
#pragma once

#include <span>
#include <string>

#include "config/config.hpp"
#include "model/dit.hpp"

namespace spotlight {

// `trained`: the published weights; `score_line`: what the model card says about the result.
void ExportWeights(const Config& config, const DitLayout& layout, std::span<const float> trained,
                   const std::string& folder, const std::string& score_line);

}  // namespace spotlight
