// Every setting of a run: one struct per section of the input file, the members named like the keys.
//
// A member's initialiser is the key's default. What each key means, its unit and the values that it may have stand in
// one place, the field list of fields.cpp; `spotlight --describe [section]` prints it. Fill a Config with ReadInput
// (input.hpp), then test what several keys must satisfy together with CheckConfig (check.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/element_type.hpp"

namespace spotlight {

// An element of a list such as `geneval_exact:1.0, ocr:0.2`.
struct WeightedName {
  std::string name;
  double weight = 0;
};

struct RunConfig {
  std::uint64_t seed = 0;
  int iterations = 100;
  std::string directory;   // empty: run/<input's stem>-<date>-<time>
  std::string time_limit;  // "hh:mm:ss"; empty: none

  // `time_limit` in seconds; 0: none.
  std::int64_t TimeLimitSeconds() const;
};

struct ModelConfig {
  enum class Precision { kFp32, kBf16 };
  enum class Activations { kAuto, kFp32, kBf16 };
  std::string path;
  std::string adapter;  // empty: none
  Precision precision = Precision::kFp32;
  Activations activations = Activations::kAuto;  // no longer kAuto after StartComputing (src/driver/computing.hpp)
  bool recompute = false;

  // That of `activations`, once it has been chosen.
  ElementType ActivationType() const {
    return activations == Activations::kBf16 ? ElementType::kBf16 : ElementType::kFp32;
  }
};

struct LoraConfig {
  int rank = 0;      // 0: all weights are trained
  double alpha = 0;  // 0: equal to rank
  std::vector<std::string> targets = {"to_q",
                                      "to_k",
                                      "to_v",
                                      "to_out.0",
                                      "add_q_proj",
                                      "add_k_proj",
                                      "add_v_proj",
                                      "to_add_out",
                                      "img_mlp.net.0.proj",
                                      "img_mlp.net.2",
                                      "txt_mlp.net.0.proj",
                                      "txt_mlp.net.2"};

  // What the adapter's product is multiplied by: alpha / rank, alpha = 0 standing for rank. Needs rank > 0.
  double Scale() const;
};

struct PromptsConfig {
  std::string train;
  std::string eval;
  std::string embeddings;                 // empty: the model folder's own table
  std::vector<WeightedName> tag_weights;  // empty: every prompt is equally likely
};

struct SamplerConfig {
  enum class Schedule { kLinear, kQwen };
  enum class Noise { kFlow, kDance, kCps };
  int steps = 10;
  int height = 64;  // pixels
  int width = 64;
  Schedule schedule = Schedule::kLinear;
  Noise noise = Noise::kFlow;
  double noise_level = 0.7;
  int window_size = 5;
  int window_first = 0;  // the window starts at a step drawn uniformly from window_first .. window_last
  int window_last = 0;
  double guidance = 1;  // 1: none
  std::string negative_prompt = " ";
  int batch = 64;
};

struct GroupConfig {
  int prompts = 8;
  int images = 8;
};

struct ExploreConfig {
  enum class Budget { kDeadline, kFixed };
  enum class Planner { kUcb, kThompson, kGreedy, kRoundRobin, kFixed };
  enum class When { kOverlap, kCritical };
  enum class Select { kVariance, kHalves };
  enum class Cache { kSteps, kTea, kFirstBlock };
  int seeds = 0;  // 0: no exploration
  int steps = 0;  // real forwards of an explored seed; 0: all of sampler/steps
  Budget budget = Budget::kDeadline;
  Planner planner = Planner::kUcb;
  double ucb = 0.03;
  double discount = 0.98;
  double margin = 0.05;
  double grace = 0.01;
  When when = When::kOverlap;
  Select select = Select::kVariance;
  double control = 0.0625;
  Cache cache = Cache::kSteps;
  double cache_threshold = 0.2;
  std::vector<double> cache_polynomial = {-450, 280, -45, 3.2, -0.02};  // highest power first
  std::string replay;                                                   // empty: none

  // Whether there is exploration beside training, and whether it ends with it or is done whole whatever that takes.
  bool Overlaps() const { return seeds > 0 && when == When::kOverlap; }
  bool Awaited() const { return budget == Budget::kFixed || !replay.empty(); }
};

struct RewardConfig {
  std::vector<WeightedName> terms = {{"geneval_exact", 1.0}};
  std::string detector;       // empty: detector.safetensors in the model folder
  std::string command;        // empty: none
  int command_timeout = 120;  // seconds
};

struct TrainConfig {
  enum class AdvantageStd { kGroup, kGlobal };
  enum class AdvantageFrom { kKept, kPool };
  double lr = 3e-4;
  int updates = 4;
  int micro_batch = 64;
  double clip_range = 1e-4;
  double kl_beta = 0;
  double advantage_clip = 5;
  AdvantageStd advantage_std = AdvantageStd::kGroup;
  AdvantageFrom advantage_from = AdvantageFrom::kKept;
  double grad_norm = 1;  // 0: gradients are not clipped
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-4;
  double ema_decay = 0;  // 0: no average is kept
  double ratio_tolerance = 1e-6;
  bool shard_weights = false;
};

struct EvalConfig {
  int every = 10;  // iterations; 0: first and last only
  int seeds = 4;
  int steps = 10;
};

struct RanksConfig {
  int trainers = 1;
  int trainer_sp = 1;  // sequence-parallel degrees
  int explorer_sp = 1;
  bool adapt_sp = true;
  bool spot_rollouts = true;
  int parked = 0;
  double detection_time = 5;  // seconds
  std::string host;           // empty: the coordinator's own host name
  int port = 0;               // 0: any free one
};

struct StoreConfig {
  std::string path;      // empty: <run directory>/store
  int commit_every = 0;  // denoising steps; 0: as often as costs nothing
};

struct SpotConfig {
  std::string trace;      // empty: none
  double time_scale = 1;  // seconds of the trace in one second of the run
  int ranks_per_node = 1;
  double notice = 30;    // seconds
  double cool_down = 1;  // seconds
};

struct CheckpointConfig {
  int every = 10;  // iterations; 0: at the start and the end only
  int keep = 2;
};

struct OutputConfig {
  int grid_every = 25;  // iterations; 0: first and last only
  int grid_images = 8;
};

struct CostConfig {
  double reserved_per_hour = 2.50;  // `currency` per rank and hour
  double spot_per_hour = 0.70;
  std::string currency = "USD";
};

struct DeviceConfig {
  enum class Backend { kKokkos, kCuda, kAuto };
  int threads = 0;                     // 0: the node's cores / its ranks
  Backend backend = Backend::kKokkos;  // who computes
  int gpu = -1;                        // -1: the rank's number on the node, modulo its GPUs
  enum class Nccl { kAuto, kOff };
  Nccl nccl = Nccl::kAuto;  // whether the trainers' GPUs exchange by it
  enum class Ipc { kAuto, kOff };
  Ipc ipc = Ipc::kAuto;  // whether groups on GPUs of a node exchange in each other's memory
};

struct PretrainConfig {
  int steps = 1500;
  int batch = 64;
  double lr = 2e-3;         // AdamW
  double matrix_lr = 0.02;  // Muon
  int images = 30000;
  double ema_decay = 0.998;
  int eval_every = 300;        // steps
  int checkpoint_every = 100;  // steps
  int text_width = 64;
  int num_layers = 4;
  int num_heads = 4;
  int head_dim = 24;
  int rope_frame = 4;
  int rope_height = 10;
  int rope_width = 10;
};

struct StudyConfig {
  int prompts = 24;
  int seeds = 24;  // of each prompt
};

struct Config {
  RunConfig run;
  ModelConfig model;
  LoraConfig lora;
  PromptsConfig prompts;
  SamplerConfig sampler;
  GroupConfig group;
  ExploreConfig explore;
  RewardConfig reward;
  TrainConfig train;
  EvalConfig eval;
  RanksConfig ranks;
  StoreConfig store;
  SpotConfig spot;
  CheckpointConfig checkpoint;
  OutputConfig output;
  CostConfig cost;
  DeviceConfig device;
  PretrainConfig pretrain;
  StudyConfig study;

  std::map<std::string, std::string> notes;    // [notes]: any keys, free text
  std::map<std::string, std::string> sources;  // "section/key" -> "file:line" or "command line"; absent: the default
};

}  // namespace spotlight
