// The parts of a model folder in diffusers' layout: transformer, vae, scheduler, and an adapter beside them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/scheduler_config.hpp"
#include "config/config.hpp"
#include "io/lora_file.hpp"
#include "model/dit_layout.hpp"
#include "model/image_decoder.hpp"
#include "model/weight_storage.hpp"

namespace spotlight {

// A part of a checkpoint lies in a folder of its own (diffusers' layout) or in the model folder itself.
std::string ModelPart(const std::string& model, const std::string& part);

// UserError, with the nearest name, unless the folder is there and its pipeline is Qwen-Image's.
void RequireModelFolder(const std::string& path);

struct ModelFiles {
  std::shared_ptr<const DitLayout> layout;
  std::shared_ptr<const TensorSource> weights;  // names and shapes are checked; null: the folder has none
  SchedulerConfig scheduler;
  std::unique_ptr<ImageDecoder> decoder;  // null: the folder has no weights of one
  std::string fingerprint;                // of all that was read
  std::vector<std::string> notes;         // what is missing, a sentence each
};

// Reads the configs and opens the weights. weights_needed: folders without weights are a UserError, not a note.
ModelFiles OpenModel(const std::string& path, const LoraSettings& lora, bool weights_needed);

// The adapter that the input asks for.
LoraSettings MakeLoraSettings(const LoraConfig& config);
Precision MakePrecision(const ModelConfig& config);

// The adapter file's values at their places in layout.adapter(), such that alpha / r times B is the file's product.
// UserError if its rank or its modules are not the layout's.
std::vector<float> AdapterValues(const DitLayout& layout, const LoraFile& file);

}  // namespace spotlight
