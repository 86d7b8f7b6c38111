// The JSON files of a model folder: model_index.json, config.json, scheduler_config.json, vocabulary.json.
//
// Keys that are absent take diffusers' defaults and unknown keys are ignored (newer versions add some), but a key that
// would change the mathematics to something not built here is refused. All mistakes are UserErrors that name the file,
// the key, the value and what is allowed.
#pragma once

#include <string>
#include <string_view>

#include "base/scheduler_config.hpp"
#include "base/transformer_config.hpp"
#include "base/vae_config.hpp"
#include "base/vocabulary.hpp"

namespace spotlight {

// If `folder` has a model_index.json, it must be a QwenImagePipeline with a QwenImageTransformer2DModel: Qwen-Image-2.1
// is another network, and the edit and layered pipelines give theirs other inputs.
void CheckModelIndex(const std::string& folder);

// `path`: the file or the folder that holds config.json. _class_name must be QwenImageTransformer2DModel.
TransformerConfig ReadTransformerConfig(const std::string& path);
TransformerConfig ParseTransformerConfig(std::string_view text, const std::string& place);  // `place`: for messages

// Writes config.json as diffusers reads it. FileError.
void WriteTransformerConfig(const std::string& path, const TransformerConfig& config);

// `path`: the file or the folder that holds scheduler_config.json. _class_name must be FlowMatchEulerDiscreteScheduler
// with exponential time shift. shift_terminal null becomes 0.
SchedulerConfig ReadSchedulerConfig(const std::string& path);
SchedulerConfig ParseSchedulerConfig(std::string_view text, const std::string& place);

// `path`: the file or the folder that holds the autoencoder's config.json. _class_name must be AutoencoderKLQwenImage;
// images are RGB at eight times the side of the latents. attn_scales and temperal_downsample do not touch the decoder
// of single images and are not read.
VaeConfig ReadVaeConfig(const std::string& path);

// `path`: the file or the folder that holds vocabulary.json, with keys words, text_len, prefix_dropped, pad.
Vocabulary ReadVocabulary(const std::string& path);

}  // namespace spotlight
