#include "driver/memory_estimate.hpp"

#include <algorithm>

namespace spotlight {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Measured: code, libraries and their tables of a run without batches; what allocator and matrix kernels add to the
// activations.
constexpr double kProgramBytes = 20 * kMiB;
constexpr double kMpiBytes = 15 * kMiB;
constexpr double kScratch = 1.45;

// Floats that one sample's block keeps for the backward pass: see model/dit_activations.hpp.
double KeptPerBlock(double tokens, double d) {
  // input, middle, normed x2, qkv x3, attention, attention_out, mlp_out, mlp hidden and act x4 each, q/k/v x3
  return tokens * d * (2 + 2 + 3 + 1 + 1 + 1 + 8 + 3);
}

// Floats that one sample needs in a pass without a backward.
double ForwardOnly(double tokens, double d) { return KeptPerBlock(tokens, d) - 2 * tokens * d; }

// Parameters of the first `parts` parts, and those of them that are matrices.
double PartsSize(const DitLayout& layout, int parts, double bytes_of_matrix) {
  double bytes = 0;
  for (int i = 0; i < parts; ++i) {
    const PartLayout& part = layout.parts()[static_cast<std::size_t>(i)];
    bytes += 4.0 * static_cast<double>(part.vectors) + bytes_of_matrix * static_cast<double>(part.matrices);
  }
  return bytes;
}

}  // namespace

double ForwardFlops(const TransformerConfig& model, double image_tokens, double text_tokens) {
  const double d = model.width(), tokens = image_tokens + text_tokens;
  return model.num_layers * (2 * 12 * d * d * tokens + 4 * tokens * tokens * d);
}

MemoryEstimate EstimateMemory(const Config& config, const DitLayout& layout, Index text_tokens, Index sigmas,
                              Role role) {
  const TransformerConfig& model = layout.config();
  const bool lora = layout.lora().rank > 0;
  const double d = model.width(), image = config.sampler.height / 16.0 * (config.sampler.width / 16.0);
  const double latent = image * model.in_channels;
  const double branches = config.sampler.guidance > 1 ? 2 : 1;
  const bool trains = role == Role::kTrainer || role == Role::kAll;
  const bool coordinates = role == Role::kCoordinator || role == Role::kAll;
  const bool bf16 = config.model.precision == ModelConfig::Precision::kBf16;
  const int all_parts = static_cast<int>(layout.parts().size());
  const double whole = PartsSize(layout, all_parts, 4);  // every base parameter in fp32
  const double trained = lora ? 4.0 * static_cast<double>(layout.adapter().size()) : whole;
  const double model_copy = PartsSize(layout, lora ? layout.used_parts(true) : all_parts, bf16 ? 2 : 4);
  const double table = lora ? 4.0 * static_cast<double>(sigmas) * (model.num_layers * 12 + 2) * d : 0;
  const double trainers = role == Role::kAll ? 1 : config.ranks.trainers;
  const double degree = role == Role::kTrainer    ? config.ranks.trainer_sp
                        : role == Role::kExplorer ? config.ranks.explorer_sp
                                                  : 1;
  const double tokens = (image + static_cast<double>(text_tokens)) / degree;
  MemoryEstimate memory;
  memory.program = kProgramBytes + (role == Role::kAll ? 0 : kMpiBytes);
  if (role != Role::kCoordinator) {
    // Two versions of what is trained: the rollout's and the evaluation's.
    memory.weights = lora ? model_copy + table + 2 * trained : 2 * model_copy;
    memory.activations =
        config.sampler.batch * (branches * ForwardOnly(tokens, d) + (config.sampler.window_size + 5) * latent) * 4;
    // Fetched weights: all of them, and a piece in three forms.
    if (role == Role::kExplorer) memory.control = trained + std::min(3 * trained, 48 * kMiB);
    if (trains) {
      const double blocks = config.model.recompute ? 1 : model.num_layers;
      const double inputs = config.model.recompute ? model.num_layers * tokens * d : 0;
      memory.activations += config.train.micro_batch *
                            (branches * (blocks * KeptPerBlock(tokens, d) + inputs + tokens * d * 13) + 5 * latent) * 4;
      if (config.train.kl_beta > 0) {
        memory.activations += config.train.micro_batch * branches * ForwardOnly(tokens, d) * 4;
        if (!lora) memory.weights += model_copy;
      }
      const double arrays = config.train.ema_decay > 0 ? 4 : 3;  // master weights, moments, average
      memory.optimizer = trained * (arrays + 1) / trainers;
      if (trainers > 1) {
        double largest = 0;
        for (const PartLayout& part : layout.parts()) {
          largest = std::max(largest, 4.0 * static_cast<double>(lora ? part.adapter : part.size()));
        }
        memory.optimizer += lora ? trained + largest : 2 * largest;
        if (!lora) memory.weights += config.train.shard_weights ? 2 * largest : model_copy;
      } else if (!lora && bf16) {
        memory.weights += model_copy;
      }
      memory.optimizer_on_device = memory.optimizer;
      memory.optimizer += 2 * arrays * trained;  // gathered, and as a checkpoint's file holds them
    }
    memory.activations *= kScratch;
    // The decoder's largest map and weights; small models have a linear one.
    if (model.attention_head_dim == 128) {
      memory.activations += 123 * kMiB + 4.0 * config.sampler.height * config.sampler.width * 144;
    }
  }
  if (coordinates) {
    const double samples = static_cast<double>(config.group.prompts) * config.group.images;
    const double published = trained * (config.train.ema_decay > 0 ? 4 : 2);
    // The trainer's result is put together and published.
    const double messages = role == Role::kCoordinator ? 2 * trained : 0;
    memory.control = published + messages + 3 * samples * (config.sampler.window_size + 1) * latent * 4;
  }
  return memory;
}

}  // namespace spotlight
