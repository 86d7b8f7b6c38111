// LoRA adapters as files: written in the two forms that users load, read in all common ones.
//
//   pytorch_lora_weights.safetensors   diffusers: keys transformer.<module>.lora_{A,B}.weight, or bare <module>...;
//                                      the scale in the header's "lora_adapter_metadata" (PEFT's LoraConfig as JSON)
//   adapter_model.safetensors, adapter_config.json   PEFT: keys base_model.model.<module>.lora_{A,B}.weight
//   *.safetensors                      ComfyUI and others: keys diffusion_model.<module>... or bare, lora_down and
//   lora_up
//                                      for A and B, the scale as a tensor <module>.alpha
// In memory, and in what is written here, alpha / r is folded into B and metadata say alpha = r, so that loaders that
// read them and loaders that do not agree: y = W x + b + B A x.
#pragma once

#include <string>
#include <vector>

#include "base/tensor.hpp"

namespace spotlight {

// `adapter`: names <module>.lora_A.weight [r, in] and <module>.lora_B.weight [out, r], scale folded. Writes the three
// files into `folder`, which must exist. `base_model`: path or name for adapter_config.json. FileError.
void WriteLoraFiles(const std::string& folder, const WeightMap& adapter, int rank,
                    const std::vector<std::string>& targets, const std::string& base_model);

struct LoraFile {
  std::string path;                  // of the tensors
  WeightMap tensors;                 // <module>.lora_A.weight [r, in], <module>.lora_B.weight [out, r], scale folded
  int rank = 0;                      // r, the same everywhere
  std::vector<std::string> modules;  // adapted, sorted: "transformer_blocks.0.attn.to_q"
  std::vector<std::string> targets;  // their kinds, as the input's lora/targets names them: "to_q", "img_mlp.net.2"
  std::vector<std::string> notes;    // what the user should be told, a sentence each
};

// `path`: a .safetensors file, or a folder with one of the two forms (diffusers' if both are there). UserError, naming
// file and tensor or field: not plain LoRA (DoRA, rsLoRA, LoKr, ...), a module that cannot be adapted here, A without
// B, shapes that disagree, several ranks, values that are not finite. Files without any scale are read with alpha = r,
// as diffusers reads them, and a note.
LoraFile ReadLora(const std::string& path);

}  // namespace spotlight
