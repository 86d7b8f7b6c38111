#include "config/fields.hpp"

#include "config/field_types.hpp"

namespace spotlight {
namespace {

constexpr OnResume kFixed = OnResume::kFixedOnResume;
constexpr OnResume kMayChange = OnResume::kMayChange;

// The block's linear layers that an adapter may be attached to, by their diffusers names.
std::vector<std::string> LoraTargets() { return LoraConfig{}.targets; }

std::vector<Field> RunFields(RunConfig& c) {
  return {
      Whole64("seed", c.seed, kFixed, "keys all noise and all draws of the run"),
      Whole("iterations", c.iterations, AtLeast(0), kMayChange, "rollout, training and publication, so many times"),
      Text("directory", c.directory, kMayChange, "where results go; empty: run/<input's stem>-<date>-<time>"),
      Duration("time_limit", c.time_limit, kMayChange, "stop in time with a checkpoint; empty: no limit"),
  };
}

std::vector<Field> ModelFields(ModelConfig& c) {
  return {
      InputPath("path", c.path, "folder of the model in diffusers' layout; required"),
      InputPath("adapter", c.adapter, "LoRA file or folder to start from (diffusers, PEFT); empty: none"),
      Choice("precision", c.precision, {"fp32", "bf16"}, kFixed,
             "of the weights that passes read; everything is summed and trained in fp32"),
      Choice("activations", c.activations, {"auto", "fp32", "bf16"}, kFixed,
             "of what flows through a block's branches; auto: bf16 where device/backend computes from it (a GPU)"),
      Flag("recompute", c.recompute, kMayChange,
           "recompute each block in the backward pass: less memory, one more forward pass"),
  };
}

std::vector<Field> LoraFields(LoraConfig& c) {
  return {
      Whole("rank", c.rank, AtLeast(0), kFixed, "rank of the adapters; 0: all weights are trained"),
      Real("alpha", c.alpha, AtLeast(0), kFixed, "adapters are scaled by alpha / rank; 0: alpha = rank"),
      NameList("targets", c.targets, LoraTargets(), kFixed, "layers of each block that get an adapter"),
  };
}

std::vector<Field> PromptsFields(PromptsConfig& c) {
  return {
      InputPath("train", c.train, "prompts trained on: GenEval .jsonl or a line each in .txt; required"),
      InputPath("eval", c.eval, "held-out prompts, same formats; required"),
      InputPath("embeddings", c.embeddings,
                "text embeddings made by scripts/encode_prompts.py; empty: the model folder's own table"),
      WeightList("tag_weights", c.tag_weights, AtLeast(0), kFixed,
                 "how often a prompt of a tag is drawn; empty: every prompt equally often"),
  };
}

std::vector<Field> SamplerFields(SamplerConfig& c) {
  return {
      Whole("steps", c.steps, Between(1, 1000), kFixed, "denoising steps of a rollout"),
      Whole("height", c.height, Between(16, 4096), kFixed, "pixels", 16),
      Whole("width", c.width, Between(16, 4096), kFixed, "pixels", 16),
      Choice("schedule", c.schedule, {"linear", "qwen"}, kFixed,
             "sigmas: equally spaced, or shifted by image size as Qwen-Image's"),
      Choice("noise", c.noise, {"flow", "dance", "cps"}, kFixed, "stochastic step: Flow-SDE, Dance-SDE or CPS"),
      Real("noise_level", c.noise_level, Above(0), kFixed, "strength of that step's noise"),
      Whole("window_size", c.window_size, Between(1, 1000), kFixed,
            "steps that are stochastic and trained; the others are ODE steps"),
      Whole("window_first", c.window_first, Between(0, 999), kFixed, "the window starts at a step drawn from here ..."),
      Whole("window_last", c.window_last, Between(0, 999), kFixed, "... to here, both included, each iteration"),
      Real("guidance", c.guidance, AtLeast(1), kFixed, "classifier-free guidance scale; 1: none"),
      Text("negative_prompt", c.negative_prompt, kFixed, "what guidance leads away from"),
      Whole("batch", c.batch, Between(1, 65536), kMayChange, "per rank: requests denoised together"),
  };
}

std::vector<Field> GroupFields(GroupConfig& c) {
  return {
      Whole("prompts", c.prompts, Between(1, 1e6), kFixed, "global: prompts of an iteration"),
      Whole("images", c.images, Between(2, 1e6), kFixed, "global: images of a prompt, compared with each other"),
  };
}

std::vector<Field> ExploreFields(ExploreConfig& c) {
  return {
      Whole("seeds", c.seeds, Between(0, 1e6), kFixed,
            "seeds tried per prompt (with a planner: at most), at least group/images; 0: off"),
      Whole("steps", c.steps, Between(0, 1000), kFixed,
            "without a planner: steps of a seed that are computed, the others reuse them; 0: all of sampler/steps"),
      Choice("budget", c.budget, {"deadline", "fixed"}, kFixed,
             "as much as fits beside training, or all whatever it takes: the same bits each time"),
      Choice("planner", c.planner, {"ucb", "thompson", "greedy", "round_robin", "fixed"}, kFixed,
             "deadline only: who chooses how many seeds and steps fit; fixed: always `seeds` and `steps`"),
      Real("ucb", c.ucb, AtLeast(0), kFixed, "planner ucb: weight of what is not yet known against the best so far"),
      Real("discount", c.discount, Between(0.01, 1), kFixed, "planners: weight of an iteration's outcome in the next"),
      Real("margin", c.margin, Between(0, 0.9), kFixed, "planners: least share of training's time left unplanned"),
      Real("grace", c.grace, Between(0, 1), kMayChange,
           "deadline only: share of training's time that its end may wait for explorers"),
      Choice("when", c.when, {"overlap", "critical"}, kFixed,
             "beside training with the weights before it, or in the rollout phase, which trains on the seeds it keeps"),
      Choice("select", c.select, {"variance", "halves"}, kFixed,
             "roll out the subset of most variance, or best and worst halves"),
      Real("control", c.control, Between(0, 1), kFixed,
           "share of the kept seeds that are drawn at random: they tell without bias how well exploration ranks"),
      Choice("cache", c.cache, {"steps", "tea", "first_block"}, kFixed,
             "which steps are computed: so many of them, or where TeaCache's or the first block's change says"),
      Real("cache_threshold", c.cache_threshold, AtLeast(0), kFixed, "tea, first_block: change that is computed anew"),
      NumberList("cache_polynomial", c.cache_polynomial, 5, kFixed,
                 "tea: its polynomial, highest power first (`spotlight calibrate` fits one)"),
      InputPath("replay", c.replay, "run.h5 of a run whose exploration is repeated, seed by seed; as --replay"),
  };
}

std::vector<Field> RewardFields(RewardConfig& c) {
  return {
      WeightList("terms", c.terms, AtLeast(0), kFixed, "weighted mean of these; `--list rewards` names them"),
      InputPath("detector", c.detector,
                "weights of the shape detector; empty: detector.safetensors in the model folder"),
      Text("command", c.command, kFixed, "shell command that judges images, for the term `command` (scripts/rewards)"),
      Whole("command_timeout", c.command_timeout, Between(1, 86400), kMayChange,
            "seconds that the command may take for one image, or to start"),
  };
}

std::vector<Field> TrainFields(TrainConfig& c) {
  return {
      Real("lr", c.lr, Above(0), kFixed, "AdamW's learning rate"),
      Whole("updates", c.updates, Between(1, 1e6), kFixed, "optimizer updates of an iteration"),
      Whole("micro_batch", c.micro_batch, Between(1, 65536), kMayChange,
            "per rank: (sample, step) pairs of a forward and backward pass; memory, and the order of sums"),
      Real("clip_range", c.clip_range, Above(0), kFixed,
           "the ratio is clipped to 1 -+ this; log-probabilities are means, hence so small"),
      Real("kl_beta", c.kl_beta, AtLeast(0), kFixed, "weight of the KL distance from the base model; 0: none"),
      Real("advantage_clip", c.advantage_clip, Above(0), kFixed, "advantages are clipped to -+ this"),
      Choice("advantage_std", c.advantage_std, {"group", "global"}, kFixed,
             "rewards are divided by the deviation of their group or of all groups"),
      Choice("advantage_from", c.advantage_from, {"kept", "pool"}, kFixed,
             "mean and deviation of a group: of the images trained on, or of all seeds explored for it"),
      Real("grad_norm", c.grad_norm, AtLeast(0), kFixed, "gradients are clipped to this norm; 0: never"),
      Real("beta1", c.beta1, BelowOne(), kFixed, "AdamW's decay of the first moment"),
      Real("beta2", c.beta2, BelowOne(), kFixed, "AdamW's decay of the second moment"),
      Real("eps", c.eps, Above(0), kFixed, "AdamW's epsilon"),
      Real("weight_decay", c.weight_decay, AtLeast(0), kFixed, "AdamW's decoupled weight decay"),
      Real("ema_decay", c.ema_decay, BelowOne(), kFixed,
           "per update: decay of the averaged weights that evaluation uses; 0: none kept"),
      Real("ratio_tolerance", c.ratio_tolerance, AtLeast(0), kMayChange,
           "warn if the ratio before the first update is further from 1"),
      Flag("shard_weights", c.shard_weights, kMayChange,
           "all weights trained: share them out over the trainers too; less memory, more traffic"),
  };
}

std::vector<Field> EvalFields(EvalConfig& c) {
  return {
      Whole("every", c.every, AtLeast(0), kMayChange, "iterations between evaluations; 0: first and last only"),
      Whole("seeds", c.seeds, Between(1, 1e6), kFixed, "images of each held-out prompt"),
      Whole("steps", c.steps, Between(1, 1000), kFixed, "ODE steps of an evaluation image"),
  };
}

std::vector<Field> PretrainFields(PretrainConfig& c) {
  return {
      Whole("steps", c.steps, AtLeast(1), kFixed, "optimizer steps; the learning rate falls to 0 over them"),
      Whole("batch", c.batch, Between(1, 65536), kFixed, "images of a step"),
      Real("lr", c.lr, Above(0), kFixed, "AdamW's learning rate: vectors, embeddings, first and last layer"),
      Real("matrix_lr", c.matrix_lr, Above(0), kFixed, "Muon's learning rate: the blocks' matrices"),
      Whole("images", c.images, AtLeast(1), kFixed, "different images; each step draws some of them"),
      Real("ema_decay", c.ema_decay, BelowOne(), kFixed, "per step: decay of the averaged weights that are written"),
      Whole("eval_every", c.eval_every, AtLeast(0), kMayChange, "steps between evaluations; 0: last only"),
      Whole("checkpoint_every", c.checkpoint_every, AtLeast(0), kMayChange,
            "steps between checkpoints; 0: at the end only"),
      Whole("text_width", c.text_width, Between(1, 65536), kFixed, "width of a word's embedding"),
      Whole("num_layers", c.num_layers, Between(1, 1000), kFixed, "transformer blocks"),
      Whole("num_heads", c.num_heads, Between(1, 1000), kFixed, "attention heads of a block"),
      Whole("head_dim", c.head_dim, Between(2, 1024), kFixed, "width of a head; the sum of the three below", 2),
      Whole("rope_frame", c.rope_frame, Between(2, 1024), kFixed, "channels that rotate with the frame", 2),
      Whole("rope_height", c.rope_height, Between(2, 1024), kFixed, "channels that rotate with the row", 2),
      Whole("rope_width", c.rope_width, Between(2, 1024), kFixed, "channels that rotate with the column", 2),
  };
}

}  // namespace

std::vector<Section> FieldList(Config& c) {
  return {
      {"run", "the run as a whole", RunFields(c.run)},
      {"model", "the diffusion transformer that is post-trained", ModelFields(c.model)},
      {"lora", "low-rank adapters instead of all weights", LoraFields(c.lora)},
      {"prompts", "what is asked for", PromptsFields(c.prompts)},
      {"sampler", "from noise to an image", SamplerFields(c.sampler)},
      {"group", "how much is rolled out; independent of the number of ranks", GroupFields(c.group)},
      {"explore", "spot ranks look for telling seeds while trainers train", ExploreFields(c.explore)},
      {"reward", "how an image is judged", RewardFields(c.reward)},
      {"train", "clipped policy loss (GRPO) and its optimizer", TrainFields(c.train)},
      {"eval", "held-out prompts with fixed seeds", EvalFields(c.eval)},
      {"ranks",
       "who does what",
       {Whole("trainers", c.ranks.trainers, AtLeast(1), kMayChange, "reserved ranks that train"),
        Whole("trainer_sp", c.ranks.trainer_sp, Between(1, 1024), kMayChange,
              "trainers that share one pass (sequence parallelism); divides trainers and the model's heads"),
        Whole("explorer_sp", c.ranks.explorer_sp, Between(1, 1024), kMayChange,
              "spot ranks of a node that share one pass, while so many are there; divides the model's heads"),
        Flag("adapt_sp", c.ranks.adapt_sp, kMayChange,
             "spot ranks may also work in smaller groups, where those were measured to be done first"),
        Flag("spot_rollouts", c.ranks.spot_rollouts, kMayChange,
             "spot ranks also roll out and evaluate; false: they only explore, and idle meanwhile"),
        Whole("parked", c.ranks.parked, AtLeast(0), kMayChange,
              "spot ranks, the last ones, that only wait until another one is lost"),
        Real("detection_time", c.ranks.detection_time, Between(0.1, 3600), kMayChange,
             "seconds until a stopped spot rank counts as lost"),
        Text("host", c.ranks.host, kMayChange,
             "name or address by which other machines reach the coordinator; empty: its host name; 127.0.0.1: they "
             "don't"),
        Whole("port", c.ranks.port, Between(0, 65535), kMayChange,
              "TCP port that the coordinator listens on, where a firewall has to know it; 0: any free one")}},
      {"store",
       "the tensor store: how far each request has got",
       {Text("path", c.store.path, kMayChange,
             "a folder on the fastest disk there is, where the run makes one of its own; empty: <run directory>/store"),
        Whole("commit_every", c.store.commit_every, AtLeast(0), kMayChange,
              "denoising steps between two commits; 0: every step, or as often as costs 0.5 %")}},
      {"spot",
       "how spot ranks come and go: rejoining, and a recorded trace of preemptions to be played",
       {InputPath("trace", c.spot.trace, "trace file; empty: none"),
        Real("time_scale", c.spot.time_scale, Above(0), kMayChange, "seconds of the trace that pass in one of the run"),
        Whole("ranks_per_node", c.spot.ranks_per_node, AtLeast(1), kMayChange,
              "spot ranks that one node of the trace stands for"),
        Real("notice", c.spot.notice, AtLeast(0), kMayChange, "seconds between SIGTERM and SIGKILL"),
        Real("cool_down", c.spot.cool_down, AtLeast(0), kMayChange,
             "seconds that a host waits to join again after losses right after joining; doubles up to 64 times")}},
      {"checkpoint",
       "what a stopped run goes on from",
       {Whole("every", c.checkpoint.every, AtLeast(0), kMayChange,
              "iterations between checkpoints; 0: at the start and the end only"),
        Whole("keep", c.checkpoint.keep, AtLeast(1), kMayChange, "newest checkpoints that are kept")}},
      {"output",
       "pictures",
       {Whole("grid_every", c.output.grid_every, AtLeast(0), kMayChange,
              "iterations between sample grids; 0: first and last only"),
        Whole("grid_images", c.output.grid_images, Between(1, 1024), kMayChange, "images in a grid")}},
      {"cost",
       "prices, for the cost table",
       {Real("reserved_per_hour", c.cost.reserved_per_hour, AtLeast(0), kMayChange, "a reserved rank, per hour"),
        Real("spot_per_hour", c.cost.spot_per_hour, AtLeast(0), kMayChange, "a spot rank, per hour"),
        Text("currency", c.cost.currency, kMayChange, "of both prices")}},
      {"device",
       "the machine",
       {Whole("threads", c.device.threads, Between(0, 4096), kMayChange,
              "per rank; 0: the node's cores divided by its ranks"),
        Choice("backend", c.device.backend, {"kokkos", "cuda", "auto"}, kFixed,
               "who computes: the CPU, a GPU, or a GPU where there is one"),
        Whole("gpu", c.device.gpu, Between(-1, 1023), kMayChange,
              "its number on the node; -1: the rank's number on the node, modulo its GPUs"),
        Choice("nccl", c.device.nccl, {"auto", "off"}, kMayChange,
               "trainers' GPUs exchange gradients by NCCL where that can be had, or always through the host by MPI: "
               "the same bits"),
        Choice("ipc", c.device.ipc, {"auto", "off"}, kMayChange,
               "groups on GPUs of one node exchange in each other's memory (CUDA IPC) where that can be had, or always "
               "through the host by MPI: the same bits")}},
      {"pretrain", "`spotlight pretrain`: a small base model, drawn shapes, flow matching", PretrainFields(c.pretrain)},
      {"study",
       "`spotlight study ranks`: do old weights and cached steps order seeds as current weights and all steps do?",
       {Whole("prompts", c.study.prompts, Between(1, 1e6), kMayChange, "training prompts, drawn as an iteration's"),
        Whole("seeds", c.study.seeds, Between(2, 1e6), kMayChange, "of each prompt; at least group/images")}},
  };
}

}  // namespace spotlight
