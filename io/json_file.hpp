// The JSON files of a model folder: config.json, scheduler_config.json, vocabulary.json.
//
// Keys that are absent take diffusers' defaults and unknown keys are ignored (newer versions add some), but a key that
// would change the mathematics to something not built here is refused. All mistakes are UserErrors that name the file,
// the key, the value and what is allowed.
#pragma once

#include <string>

#include "base/scheduler_config.hpp"
#include "base/transformer_config.hpp"
#include "base/vocabulary.hpp"

namespace spotlight {

// `path`: the file or the folder that holds config.json. _class_name must be QwenImageTransformer2DModel.
TransformerConfig ReadTransformerConfig(const std::string& path);

// Writes config.json as diffusers reads it. FileError.
void WriteTransformerConfig(const std::string& path, const TransformerConfig& config);

// `path`: the file or the folder that holds scheduler_config.json. _class_name must be FlowMatchEulerDiscreteScheduler
// with exponential time shift. shift_terminal null becomes 0.
SchedulerConfig ReadSchedulerConfig(const std::string& path);

// `path`: the file or the folder that holds vocabulary.json, with keys words, text_len, prefix_dropped, pad.
Vocabulary ReadVocabulary(const std::string& path);

}  // namespace spotlight
