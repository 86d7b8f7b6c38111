#include "io/json_file.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "io/atomic_file.hpp"
#include "io/json_reading.hpp"

namespace spotlight {
namespace {

using nlohmann::json;

constexpr const char* kTransformerClass = "QwenImageTransformer2DModel";
constexpr int kMaxSize = 1 << 24;  // no size in a model comes near; keeps products of two within 64 bits

std::string InFolder(const std::string& path, const char* name) {
  return std::filesystem::is_directory(path) ? (std::filesystem::path(path) / name).string() : path;
}

void RequireClass(const json& config, const std::string& path, const std::string& wanted) {
  const auto found = config.find("_class_name");
  if (found == config.end()) return;
  if (!found->is_string() || found->get<std::string>() != wanted) {
    throw UserError(fmt::format("{}: \"_class_name\" is {}; only \"{}\" is supported", path, Brief(*found), wanted));
  }
}

// Variants of the network or the schedule that are not built here: false (or absent) is the only value allowed.
void RefuseIfTrue(const json& config, const std::string& path, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (BoolOr(config, path, key, false)) {
      throw UserError(fmt::format("{}: \"{}\" is true; that variant is not supported, only false is", path, key));
    }
  }
}

constexpr int kMaxVaeSize = 1 << 12;  // keeps the products of channels, kernels and pixels within 64 bits

// The list at `key`, one finite number a latent channel; `fallback`, which must fit too, if the key is absent.
std::vector<float> ChannelNumbers(const json& config, const std::string& file, const char* key,
                                  const std::vector<float>& fallback, int channels) {
  const auto found = config.find(key);
  std::vector<float> result = fallback;
  bool good = true;
  if (found != config.end()) {
    good = found->is_array() &&
           std::all_of(found->begin(), found->end(), [](const json& number) { return number.is_number(); });
    result = good ? found->get<std::vector<float>>() : std::vector<float>();
    good = good && std::all_of(result.begin(), result.end(), [](float x) { return std::isfinite(x); });
  }
  if (!good || result.size() != static_cast<std::size_t>(channels)) {
    throw UserError(fmt::format("{}: \"{}\" is {}; {} numbers are meant, as many as \"z_dim\" says", file, key,
                                found == config.end() ? "absent" : Brief(*found), channels));
  }
  return result;
}

TransformerConfig TransformerConfigFrom(const json& config, const std::string& file) {
  RequireClass(config, file, kTransformerClass);
  RefuseIfTrue(config, file, {"guidance_embeds", "zero_cond_t", "use_additional_t_cond", "use_layer3d_rope"});
  TransformerConfig result;
  const auto size = [&](const char* key, int fallback) { return IntOr(config, file, key, fallback, 1, kMaxSize); };
  result.patch_size = size("patch_size", result.patch_size);
  result.in_channels = size("in_channels", result.in_channels);
  result.num_layers = size("num_layers", result.num_layers);
  result.attention_head_dim = size("attention_head_dim", result.attention_head_dim);
  result.num_attention_heads = size("num_attention_heads", result.num_attention_heads);
  result.joint_attention_dim = size("joint_attention_dim", result.joint_attention_dim);
  // diffusers: out_channels null means in_channels.
  const bool no_out = config.contains("out_channels") && config["out_channels"].is_null();
  result.out_channels = no_out ? result.in_channels : size("out_channels", result.out_channels);

  if (const auto axes = config.find("axes_dims_rope"); axes != config.end()) {
    bool good = axes->is_array() && axes->size() == result.axes_dims_rope.size();
    for (std::size_t i = 0; good && i < axes->size(); ++i) {
      good = (*axes)[i].is_number_unsigned() && (*axes)[i].get<std::uint64_t>() <= std::uint64_t{kMaxSize} &&
             (*axes)[i].get<int>() % 2 == 0;
      if (good) result.axes_dims_rope[i] = (*axes)[i].get<int>();
    }
    if (!good) {
      throw UserError(fmt::format(
          "{}: \"axes_dims_rope\" is {}; three even whole numbers are meant (frame, row, column)", file, Brief(*axes)));
    }
  }
  const auto& axes = result.axes_dims_rope;
  if (axes[0] + axes[1] + axes[2] != result.attention_head_dim) {
    throw UserError(
        fmt::format("{}: \"axes_dims_rope\" [{}, {}, {}] sums to {}; it must sum to \"attention_head_dim\", {}", file,
                    axes[0], axes[1], axes[2], axes[0] + axes[1] + axes[2], result.attention_head_dim));
  }
  return result;
}

SchedulerConfig SchedulerConfigFrom(const json& config, const std::string& file) {
  RequireClass(config, file, "FlowMatchEulerDiscreteScheduler");
  RefuseIfTrue(
      config, file,
      {"invert_sigmas", "stochastic_sampling", "use_beta_sigmas", "use_exponential_sigmas", "use_karras_sigmas"});
  if (const auto type = config.find("time_shift_type"); type != config.end() && *type != "exponential") {
    throw UserError(
        fmt::format("{}: \"time_shift_type\" is {}; only \"exponential\" is supported", file, Brief(*type)));
  }
  SchedulerConfig result;
  result.num_train_timesteps = IntOr(config, file, "num_train_timesteps", result.num_train_timesteps, 1, kMaxSize);
  result.shift = NumberOr(config, file, "shift", result.shift);
  result.use_dynamic_shifting = BoolOr(config, file, "use_dynamic_shifting", result.use_dynamic_shifting);
  result.base_shift = NumberOr(config, file, "base_shift", result.base_shift);
  result.max_shift = NumberOr(config, file, "max_shift", result.max_shift);
  result.base_image_seq_len = IntOr(config, file, "base_image_seq_len", result.base_image_seq_len, 1, kMaxSize);
  result.max_image_seq_len = IntOr(config, file, "max_image_seq_len", result.max_image_seq_len, 1, kMaxSize);
  const bool no_terminal = config.contains("shift_terminal") && config["shift_terminal"].is_null();
  result.shift_terminal = no_terminal ? 0.0 : NumberOr(config, file, "shift_terminal", result.shift_terminal);
  if (!(result.shift > 0)) {
    throw UserError(fmt::format("{}: \"shift\" is {}; it must be greater than 0", file, result.shift));
  }
  if (!(result.shift_terminal >= 0 && result.shift_terminal < 1)) {
    throw UserError(fmt::format("{}: \"shift_terminal\" is {}; 0 (off) or a sigma below 1 is allowed", file,
                                result.shift_terminal));
  }
  if (result.max_image_seq_len <= result.base_image_seq_len) {
    throw UserError(fmt::format("{}: \"max_image_seq_len\" is {}; it must be greater than \"base_image_seq_len\", {}",
                                file, result.max_image_seq_len, result.base_image_seq_len));
  }
  return result;
}

}  // namespace

void CheckModelIndex(const std::string& folder) {
  const std::string file = (std::filesystem::path(folder) / "model_index.json").string();
  if (!std::filesystem::exists(file)) return;
  const json index = ReadJsonFile(file);
  RequireClass(index, file, "QwenImagePipeline");
  const auto transformer = index.find("transformer");  // ["diffusers", class]
  const json name = transformer != index.end() && transformer->is_array() && transformer->size() == 2
                        ? (*transformer)[1]
                        : json(nullptr);
  if (name != kTransformerClass) {
    throw UserError(fmt::format("{}: the class of \"transformer\" is {}; only \"{}\" is supported", file, Brief(name),
                                kTransformerClass));
  }
}

TransformerConfig ParseTransformerConfig(std::string_view text, const std::string& place) {
  return TransformerConfigFrom(ParseJsonObject(text, place), place);
}

TransformerConfig ReadTransformerConfig(const std::string& path) {
  const std::string file = InFolder(path, "config.json");
  return TransformerConfigFrom(ReadJsonFile(file), file);
}

SchedulerConfig ParseSchedulerConfig(std::string_view text, const std::string& place) {
  return SchedulerConfigFrom(ParseJsonObject(text, place), place);
}

SchedulerConfig ReadSchedulerConfig(const std::string& path) {
  const std::string file = InFolder(path, "scheduler_config.json");
  return SchedulerConfigFrom(ReadJsonFile(file), file);
}

VaeConfig ReadVaeConfig(const std::string& path) {
  const std::string file = InFolder(path, "config.json");
  const json config = ReadJsonFile(file);
  if (!config.contains("_class_name")) {
    throw UserError(file + ": has no \"_class_name\"; the autoencoder's must be \"AutoencoderKLQwenImage\"");
  }
  RequireClass(config, file, "AutoencoderKLQwenImage");
  VaeConfig result;
  const auto size = [&](const char* key, int fallback) { return IntOr(config, file, key, fallback, 1, kMaxVaeSize); };
  result.base_dim = size("base_dim", result.base_dim);
  result.z_dim = size("z_dim", result.z_dim);
  result.num_res_blocks = size("num_res_blocks", result.num_res_blocks);
  if (size("input_channels", 3) != 3) {
    throw UserError(
        fmt::format("{}: \"input_channels\" is {}; only 3 (RGB) is supported", file, Brief(config["input_channels"])));
  }
  if (const auto factors = config.find("dim_mult"); factors != config.end()) {
    bool good = factors->is_array() && factors->size() == result.dim_mult.size();
    for (std::size_t i = 0; good && i < factors->size(); ++i) {
      good = (*factors)[i].is_number_unsigned() && (*factors)[i] >= 1 && (*factors)[i] <= kMaxVaeSize;
      if (good) result.dim_mult[i] = (*factors)[i].get<int>();
    }
    if (!good) {
      throw UserError(
          fmt::format("{}: \"dim_mult\" is {}; four whole numbers from 1 are meant, since the image has "
                      "eight times the side of the latents",
                      file, Brief(*factors)));
    }
  }
  for (std::size_t i = 1; i < result.dim_mult.size(); ++i) {
    if (result.base_dim * result.dim_mult[i] % 2 != 0) {
      throw UserError(fmt::format("{}: \"base_dim\" {} times \"dim_mult\" {} is odd; each upsampling halves it", file,
                                  result.base_dim, result.dim_mult[i]));
    }
  }
  result.latents_mean = ChannelNumbers(config, file, "latents_mean", result.latents_mean, result.z_dim);
  result.latents_std = ChannelNumbers(config, file, "latents_std", result.latents_std, result.z_dim);
  return result;
}

Vocabulary ReadVocabulary(const std::string& path) {
  const std::string file = InFolder(path, "vocabulary.json");
  const json config = ReadJsonFile(file);
  const auto words = config.find("words");
  if (words == config.end() || !words->is_array() || words->empty()) {
    throw UserError(file + ": \"words\" must be a list of at least one word");
  }
  Vocabulary result;
  for (const json& word : *words) {
    if (!word.is_string()) {
      throw UserError(fmt::format("{}: word {} is {}; a string is meant", file, result.words.size(), Brief(word)));
    }
    result.words.push_back(word.get<std::string>());
  }
  result.text_len = IntOr(config, file, "text_len", result.text_len, 1, kMaxSize);
  result.prefix_dropped = IntOr(config, file, "prefix_dropped", result.prefix_dropped, 0, kMaxSize);
  result.pad = IntOr(config, file, "pad", result.pad, 0, static_cast<int>(result.words.size()) - 1);
  return result;
}

void WriteTransformerConfig(const std::string& path, const TransformerConfig& config) {
  const json object = {{"_class_name", kTransformerClass},
                       {"patch_size", config.patch_size},
                       {"in_channels", config.in_channels},
                       {"out_channels", config.out_channels},
                       {"num_layers", config.num_layers},
                       {"attention_head_dim", config.attention_head_dim},
                       {"num_attention_heads", config.num_attention_heads},
                       {"joint_attention_dim", config.joint_attention_dim},
                       {"guidance_embeds", false},
                       {"axes_dims_rope", config.axes_dims_rope}};
  WriteFileAtomically(path, object.dump(2) + "\n");
}

}  // namespace spotlight
