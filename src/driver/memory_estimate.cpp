#include "driver/memory_estimate.hpp"

#include <algorithm>
#include <cmath>

#include "driver/computing.hpp"
#include "train/shard_collectives.hpp"

namespace spotlight {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
// Measured, on the small model and on two blocks of Qwen-Image's width: code, libraries and their tables of a run
// without batches; the matrix kernels' code for the shapes of a rollout, and of training; what the allocator and the
// kernels' working memory add to the activations.
constexpr double kProgramBytes = 20 * kMiB;
constexpr double kMpiBytes = 15 * kMiB;
constexpr double kForwardKernels = 4.5 * kMiB;
constexpr double kBackwardKernels = 11.5 * kMiB;
constexpr double kScratch = 1.1;
// Three forms of a piece of weights (comm/weight_pieces.hpp): values, message, frame.
constexpr double kMessage = 3 * 16 * kMiB;

// Scratch memory on a device: at least cuBLASLt's, and in units of as much (kernels/cuda/scratch.hpp). cuDNN's backward
// of attention on bfloat16, where it is deterministic in no other way (Hopper), keeps a number of bfloat16 for each
// head, query and key of a sample, in tiles of 64 queries and 128 keys, and ours beside it rows of the output and of
// its gradient (kernels/attention_cudnn.cpp).
double ScratchOnDevice(const TransformerConfig& model, bool bf16, bool trains, double tokens, double degree) {
  constexpr double kUnit = 64 * kMiB;
  if (!bf16 || !trains) return kUnit;
  const auto tiles = [&](double size) { return std::ceil(tokens / size) * size; };
  const double heads = std::ceil(model.num_attention_heads / degree);
  const double bytes = 2 * heads * (tiles(64) * tiles(128) + 2 * tokens * model.attention_head_dim);
  return std::ceil(bytes / kUnit) * kUnit;
}

// Activations of a sample are counted in multiples of tokens x width of this rank: see model/dit_activations.hpp.
// Of them the streams, and sums and tables of their rows, are always fp32, the branches as model/activations has it.
struct Units {
  double branches = 0, streams = 0;

  Units operator+(const Units& other) const { return {branches + other.branches, streams + other.streams}; }
  Units operator*(double times) const { return {branches * times, streams * times}; }
};
// A block keeps normed x2, qkv x3, attention, attention_out, mlp_out, mlp hidden and act x4 each, and q/k/v x3; for the
// backward pass also input and middle of the stream.
constexpr Units kForwardOnly = {2 + 3 + 1 + 1 + 1 + 8 + 3, 0};
constexpr Units kKeptPerBlock = {kForwardOnly.branches, 2};
// The running stream's gradient, and those of branch, normed, hidden x4, qkv x3, attention, q/k/v x2.
constexpr Units kBackward = {12, 1};
// In a group, more: own q/k/v x3 and the attention of own heads, and what an exchange of q, k and v sends and receives;
// backward own heads' gradient, a layer's input and gradient of all rows (x5), and their exchange beside that above.
constexpr Units kGroupForward = {3 + 1 + 2 * 3, 0};
constexpr Units kGroupBackward = {1 + 5 + 2 * 5 - 2 * 3, 0};
// Where all weights are trained a layer's input and gradient (x4 each) and their exchange are of all tokens; so are, on
// the first rank, operands of sums (model/token_sums.hpp): qkv and its gradient, a stream and what is beside it, and
// the gradients of q and k.
constexpr Units kWholeBackwardOwn = {1 - 2 * 3, 0};
constexpr Units kWholeBackwardAll = {8 + 2 * 5 + 3 + 3 + 1 + 2, 1};

// A window has two slots for each rank of the node, of which this many are assumed.
constexpr double kNodeRanks = 8;

double PartBytes(const PartLayout& part, double bytes_of_matrix) {
  return 4.0 * static_cast<double>(part.vectors) + bytes_of_matrix * static_cast<double>(part.matrices);
}

// The first `parts` parts; vectors are fp32 in any precision.
double PartsSize(const DitLayout& layout, int parts, double bytes_of_matrix) {
  double bytes = 0;
  for (int i = 0; i < parts; ++i) bytes += PartBytes(layout.parts()[static_cast<std::size_t>(i)], bytes_of_matrix);
  return bytes;
}

// One part of each kind (stem, block, time, modulation): what passes over parts that are shared out hold at a time.
double OneOfEachKind(const DitLayout& layout, double bytes_of_matrix) {
  double bytes = 0;
  for (const int part : {DitLayout::kStem, layout.block_part(0), layout.time_part(), layout.modulation_part(0)}) {
    bytes += PartBytes(layout.parts()[static_cast<std::size_t>(part)], bytes_of_matrix);
  }
  return bytes;
}

// What exchanges by CUDA IPC and NCCL keep on the device. NCCL's own memory, which depends on the machine, comes on
// top.
double ExchangeBytes(const Config& config, const DitLayout& layout, Role role, double degree) {
  double bytes = 0;
  if (degree > 1 && config.device.ipc != DeviceConfig::Ipc::kOff) bytes += kNodeRanks * 2 * kWindowSlotBytes;
  if (role != Role::kTrainer || config.ranks.trainers == 1 || config.device.nccl == DeviceConfig::Nccl::kOff) {
    return bytes;
  }
  Index largest = 0;  // of the ranges that are summed and gathered
  for (const PartLayout& part : layout.parts()) {
    largest = std::max(largest, layout.lora().rank > 0 ? part.adapter : std::max(part.vectors, part.matrices));
  }
  // Pieces of two rounds of a sum, each of all trainers; a range of the state, which goes to the host.
  const double whole = 4.0 * static_cast<double>(largest);
  return bytes + std::min(2 * whole, static_cast<double>(ShardCollectives::kScratch)) + whole;
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
  const double samples = 4 * latent * (config.sampler.window_size + 1) * config.group.prompts * config.group.images;
  const double branches = config.sampler.guidance > 1 ? 2 : 1;
  const bool trains = role == Role::kTrainer || role == Role::kAll;
  const bool coordinates = role == Role::kCoordinator || role == Role::kAll;
  const bool bf16 = config.model.precision == ModelConfig::Precision::kBf16;
  const double matrix = bf16 ? 2 : 4;
  const auto element = static_cast<double>(SizeOf(config.model.ActivationType()));
  const double trained = 4.0 * static_cast<double>(lora ? layout.adapter().size() : layout.base().size());
  const double model_copy = PartsSize(layout, layout.used_parts(lora), matrix);
  const double trainers = role == Role::kAll ? 1 : config.ranks.trainers;
  const double degree = role == Role::kTrainer    ? config.ranks.trainer_sp
                        : role == Role::kExplorer ? config.ranks.explorer_sp
                                                  : 1;
  const double unit = (image + static_cast<double>(text_tokens)) / degree * d;
  MemoryEstimate memory;
  memory.program = kProgramBytes + (role == Role::kAll ? 0 : kMpiBytes);
  if (role != Role::kCoordinator) {
    memory.base = lora ? model_copy : 0;
    if (lora) memory.table = 4.0 * static_cast<double>(sigmas) * (model.num_layers * 12 + 2) * d;
    // What is trained, and its average, where evaluations use one.
    const double versions = config.train.ema_decay > 0 ? 2 : 1;
    memory.weights = memory.base + memory.table + versions * (lora ? trained : model_copy);
    memory.scratch_on_device =
        ScratchOnDevice(model, element == 2, trains, image + static_cast<double>(text_tokens), degree);
    const auto bytes = [&](const Units& units) { return units.branches * element + units.streams * 4; };
    const Units group_forward = degree > 1 ? kGroupForward : Units{};
    const double forward = bytes(kForwardOnly + group_forward);
    memory.activations =
        config.sampler.batch * (branches * forward * unit + 4 * (config.sampler.window_size + 5) * latent);
    // What cached steps keep of the image stream (model/step_cache.hpp).
    const ExploreConfig& explore = config.explore;
    const bool gated = explore.cache != ExploreConfig::Cache::kSteps;
    const bool fewer = explore.steps > 0 || !explore.Awaited();
    if (explore.Overlaps() && (gated || fewer)) {
      memory.activations += config.sampler.batch * branches * (gated ? 4 : 2) * image / degree * d * 4;
    }
    // Of fetched weights a piece in three forms, and all of a model as they came, before they are rounded.
    if (role == Role::kExplorer) memory.control = (lora ? 0 : trained) + std::min(3 * trained, kMessage);
    if (trains) {
      memory.control += samples;
      const double layers = model.num_layers;
      const Units kept = config.model.recompute ? kKeptPerBlock + Units{0, layers} : kKeptPerBlock * layers;
      const Units group = lora ? kGroupBackward : kWholeBackwardOwn + kWholeBackwardAll * degree;
      const Units scratch = kBackward + (degree > 1 ? kGroupForward + group : Units{});
      memory.activations += config.train.micro_batch * (branches * bytes(kept + scratch) * unit + 4 * 5 * latent);
      if (config.train.kl_beta > 0) {
        memory.activations += config.train.micro_batch * branches * forward * unit;
        if (!lora) memory.weights += model_copy;
      }
      const double arrays = config.train.ema_decay > 0 ? 4 : 3;  // master weights, moments, average
      memory.optimizer = trained * (arrays + 1) / trainers;
      // Sums of a pass, part by part.
      memory.optimizer += lora ? 4.0 * static_cast<double>(layout.parts()[1].adapter) : OneOfEachKind(layout, 4);
      if (trainers > 1 && lora) {
        memory.optimizer += trained;  // the working copy
      } else if (trainers > 1) {
        memory.weights += config.train.shard_weights ? OneOfEachKind(layout, matrix) : model_copy;
      } else if (!lora && bf16) {
        memory.weights += model_copy;
      }
      memory.optimizer_on_device = memory.optimizer;
      memory.optimizer += 2 * arrays * trained;  // gathered, and as a checkpoint's file holds them
    }
    memory.activations = kScratch * memory.activations + kForwardKernels + (trains ? kBackwardKernels : 0);
    // The decoder's largest map and weights; small models have a linear one.
    if (model.attention_head_dim == 128) {
      memory.activations += 123 * kMiB + 4.0 * config.sampler.height * config.sampler.width * 144;
    }
  }
  memory.exchange = ExchangeBytes(config, layout, role, degree);
  if (coordinates) {
    const double published = trained * (config.train.ema_decay > 0 ? 4 : 2);
    // The trainers' result is put together; a piece of it that comes in, and one that goes out, in three forms each.
    const double messages = role == Role::kCoordinator ? 2 * trained + 2 * std::min(3 * trained, kMessage) : 0;
    // As they were rolled out, and for the trainers.
    memory.control += published + messages + 2 * samples;
  }
  return memory;
}

}  // namespace spotlight
