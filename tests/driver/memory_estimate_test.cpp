// The memory of a rank that trains the published Qwen-Image, against arithmetic by hand, and what is said where it does
// not fit. Sizes: shared reference of the model, section 1.
#include "driver/memory_estimate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "driver/memory_advice.hpp"

namespace spotlight {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr Index kText = 64, kSigmas = 58;
constexpr double kAll = 20'430'401'088;  // parameters
constexpr double kAdapter = 424'673'280;
constexpr double kModulation = 60.0 * 113'283'072;
constexpr double kTime = (256.0 + 1) * 3072 + (3072.0 + 1) * 3072 + (3072.0 + 1) * 2 * 3072;
// Biases and norms, which stay fp32: outside of the blocks, and of a block without modulation.
constexpr double kStemVectors = 3584 + 2 * 3072 + 64;
constexpr double kBlockVectors = 2 * (4 + 4 + 1) * 3072.0 + 4 * 128;

class QwenImage : public testing::Test {
 protected:
  QwenImage() {
    config_.lora = {.rank = 64, .alpha = 128};
    config_.model.precision = ModelConfig::Precision::kBf16;
    config_.model.recompute = true;
    config_.sampler.height = config_.sampler.width = 512;
    config_.sampler.guidance = 4;
    config_.sampler.batch = 16;
    config_.sampler.window_size = 2;
    config_.train.micro_batch = 4;
    config_.ranks.trainers = 4;
  }
  DitLayout Layout() const {
    if (config_.lora.rank == 0) return {model_, {}};
    return {model_, {config_.lora.rank, config_.lora.alpha, config_.lora.targets}};
  }
  MemoryEstimate Estimate(Role role) const { return EstimateMemory(config_, Layout(), kText, kSigmas, role); }
  std::optional<std::vector<std::string>> Changes(Role role, double gib) const {
    return ChangesToFit(config_, Layout(), kText, kSigmas, role, gib * kGiB);
  }

  TransformerConfig model_;
  Config config_;
};

TEST_F(QwenImage, LayoutIsThePublishedOne) {
  EXPECT_EQ(Layout().base().size(), static_cast<Index>(kAll));
  EXPECT_EQ(Layout().adapter().size(), static_cast<Index>(kAdapter));
}

TEST_F(QwenImage, BaseUnderAnAdapterIsWithoutModulation) {
  const double resident = kAll - kModulation - kTime, vectors = kStemVectors + 60 * kBlockVectors;
  EXPECT_NEAR(resident, 13.604e9, 1e6);
  const MemoryEstimate memory = Estimate(Role::kExplorer);
  EXPECT_DOUBLE_EQ(memory.base, 2 * resident + 2 * vectors);
  // Per sigma 60 x 2 x 6 d numbers of the blocks and 2 d of the end.
  EXPECT_DOUBLE_EQ(memory.table, 4.0 * kSigmas * (60.0 * 2 * 18'432 + 2 * 3072));
  EXPECT_DOUBLE_EQ(memory.weights, memory.base + memory.table + 4 * kAdapter);
  config_.train.ema_decay = 0.9;  // evaluations use the average
  EXPECT_DOUBLE_EQ(Estimate(Role::kExplorer).weights, memory.base + memory.table + 2 * 4 * kAdapter);
  config_.model.precision = ModelConfig::Precision::kFp32;
  EXPECT_DOUBLE_EQ(Estimate(Role::kExplorer).base, 4 * resident);
}

TEST_F(QwenImage, AdaptersOptimizerIsSharedOut) {
  // Of four trainers: a quarter of master weights, gradient and two moments; the working copy; a block's sum.
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).optimizer_on_device, 4 * kAdapter * (4.0 / 4 + 1 + 1.0 / 60));
  config_.train.ema_decay = 0.9;
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).optimizer_on_device, 4 * kAdapter * (5.0 / 4 + 1 + 1.0 / 60));
  config_.ranks.trainers = 1;
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).optimizer_on_device, 4 * kAdapter * (5 + 1.0 / 60));
  EXPECT_EQ(Estimate(Role::kExplorer).optimizer, 0);
}

TEST_F(QwenImage, ExchangesNeedMemoryOfTheDevice) {
  constexpr double kSlot = 8 * 1024 * 1024.0, kWindow = 8 * 2 * kSlot;  // for 8 ranks of a node
  const double block = 4 * kAdapter / 60;
  const MemoryEstimate trainer = Estimate(Role::kTrainer);
  EXPECT_DOUBLE_EQ(trainer.exchange, 3 * block);  // two rounds of a sum, and a gathered block
  EXPECT_EQ(Estimate(Role::kExplorer).exchange, 0);
  config_.device.nccl = DeviceConfig::Nccl::kOff;
  EXPECT_EQ(Estimate(Role::kTrainer).exchange, 0);
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).device(), trainer.device() - 3 * block);
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).total(), trainer.total()) << "through the host without a device";
  config_.ranks.explorer_sp = 2;
  EXPECT_EQ(Estimate(Role::kTrainer).exchange, 0);
  EXPECT_DOUBLE_EQ(Estimate(Role::kExplorer).exchange, kWindow);
  config_.device.ipc = DeviceConfig::Ipc::kOff;
  EXPECT_EQ(Estimate(Role::kExplorer).exchange, 0);
  config_.device.nccl = DeviceConfig::Nccl::kAuto;
  config_.lora = {};
  const double matrices = 4 * 12 * 2 * 3072.0 * 3072;  // of a block; the sum goes in pieces of 128 MiB
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).exchange, 16 * kSlot + matrices);
}

TEST_F(QwenImage, AllWeightsTrained) {
  config_.lora = {};
  const double vectors = kStemVectors + kTime - (256.0 + 3072 + 2 * 3072) * 3072 + 60 * (kBlockVectors + 12.0 * 3072);
  const double copy = 2 * kAll + 2 * vectors;
  EXPECT_EQ(Estimate(Role::kTrainer).base, 0);
  EXPECT_DOUBLE_EQ(Estimate(Role::kExplorer).weights, copy);
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).weights, 2 * copy);
  const double each = 4 * (kAll - 59 * 339'831'296.0);  // one block, and what is outside of the blocks
  EXPECT_DOUBLE_EQ(Estimate(Role::kTrainer).optimizer_on_device, 16 * kAll / 4 + each);
  config_.train.shard_weights = true;
  EXPECT_NEAR(Estimate(Role::kTrainer).weights, copy + each / 2, 1e7);
}

// 1.1: the allocator's and kernels' share. A pass holds one block's activations and the inputs of all with
// recomputation, else those of all blocks.
TEST_F(QwenImage, RecomputationSavesActivations) {
  const double with = Estimate(Role::kTrainer).activations;
  config_.model.recompute = false;
  const double without = Estimate(Role::kTrainer).activations;
  const double token = 4 * 2 * 4 * (1024.0 + kText) * 3072 * 1.1;  // pairs, branches, bytes, tokens, d, scratch
  EXPECT_NEAR(without - with, token * (59 * 21 - 60), 1e6);
}

// Branches take half of it, the streams what they took: of the units above 19 of a block and 12 of gradients are
// halved.
TEST_F(QwenImage, Bf16ActivationsHalveTheBranches) {
  const MemoryEstimate trainer = Estimate(Role::kTrainer), explorer = Estimate(Role::kExplorer);
  config_.model.activations = ModelConfig::Activations::kBf16;
  const double token = 2 * 2 * (1024.0 + kText) * 3072 * 1.1;  // branches, bytes saved, tokens, d, scratch
  EXPECT_NEAR(explorer.activations - Estimate(Role::kExplorer).activations, token * 16 * 19, 1);
  EXPECT_NEAR(trainer.activations - Estimate(Role::kTrainer).activations, token * (16 * 19 + 4 * (19 + 12)), 1);
  EXPECT_EQ(Estimate(Role::kTrainer).weights, trainer.weights);
  EXPECT_EQ(Estimate(Role::kTrainer).optimizer, trainer.optimizer);
}

// 24 heads, 1024 + 64 tokens: 17 tiles of 64 queries, 9 of 128 keys.
TEST_F(QwenImage, AttentionsBackwardTakesScratchMemory) {
  constexpr double kUnit = 64 * 1024 * 1024;
  EXPECT_EQ(Estimate(Role::kTrainer).scratch_on_device, kUnit) << "our own kernels do fp32";
  config_.model.activations = ModelConfig::Activations::kBf16;
  EXPECT_EQ(Estimate(Role::kExplorer).scratch_on_device, kUnit);
  const MemoryEstimate small = Estimate(Role::kTrainer);
  EXPECT_EQ(small.scratch_on_device, kUnit * std::ceil(2.0 * 24 * (1088 * 1152 + 2 * 1088 * 128) / kUnit));
  EXPECT_EQ(small.device(),
            small.weights + small.optimizer_on_device + small.activations + small.exchange + small.scratch_on_device);
  EXPECT_EQ(Estimate(Role::kCoordinator).scratch_on_device, 0);
  config_.sampler.height = config_.sampler.width = 1280;
  const double large = Estimate(Role::kTrainer).scratch_on_device;
  EXPECT_NEAR(large / kGiB, 2.03, 0.1);
  config_.ranks.trainer_sp = 2;
  EXPECT_NEAR(Estimate(Role::kTrainer).scratch_on_device, large / 2, kUnit) << "a rank has its own heads, all tokens";
}

TEST_F(QwenImage, GuidanceAndSharingScaleActivations) {
  config_.sampler.batch = 1;
  const auto of = [&](Role role) {
    config_.sampler.height = config_.sampler.width = 1280;
    return Estimate(role).activations - 123 * 1024 * 1024.0 - 4.0 * 1280 * 1280 * 144;
  };
  const double both = of(Role::kExplorer);
  config_.sampler.guidance = 1;
  EXPECT_NEAR(of(Role::kExplorer) / both, 0.5, 0.01);
  config_.sampler.guidance = 4;
  config_.ranks.explorer_sp = 4;
  EXPECT_NEAR(of(Role::kExplorer) / both, (19.0 + 10) / 19 / 4, 0.01) << "exchanges take memory too";
  const double trainer = of(Role::kTrainer);
  config_.ranks.trainer_sp = 2;
  EXPECT_NEAR(of(Role::kTrainer) / trainer, 0.5 + 0.5 * (10 + 4 * 20) / (19 + 4 * (21 + 60 + 13)), 0.01);
}

// Gradients of all weights need a layer's input and gradient of all tokens: sharing saves less.
TEST_F(QwenImage, SharingATrainingPassOfAllWeights) {
  config_.lora = {};
  config_.sampler.batch = 1;
  config_.model.recompute = true;
  const auto trainer = [&](int degree) {
    config_.ranks.trainer_sp = degree;
    return Estimate(Role::kTrainer).activations;
  };
  const double alone = trainer(1);
  const double token = 2 * 4 * (1024.0 + kText) * 3072 * 1.1;  // branches, bytes, tokens, d, scratch
  for (const int degree : {2, 4}) {
    const double rollout = (19.0 + 10) / degree - 19, pair = (94.0 + 10 - 5) / degree + 28 - 94;
    EXPECT_NEAR(trainer(degree) - alone, token * (rollout + 4 * pair), 1e6) << degree;
  }
}

TEST_F(QwenImage, AdviceIsFewChangesThatSuffice) {
  EXPECT_THAT(Changes(Role::kTrainer, 79.1), Optional(ElementsAre())) << "fits as it is";
  config_.model.recompute = false;
  EXPECT_THAT(Changes(Role::kTrainer, 79.1), Optional(ElementsAre("model/recompute=true")));
  config_.model.recompute = true;
  config_.train.micro_batch = 64;
  EXPECT_THAT(Changes(Role::kTrainer, 79.1), Optional(ElementsAre("train/micro_batch=8")));
  EXPECT_THAT(Changes(Role::kTrainer, 139.8), Optional(ElementsAre("train/micro_batch=32")));
  config_.sampler.height = config_.sampler.width = 2048;
  config_.sampler.batch = 1;
  EXPECT_THAT(Changes(Role::kTrainer, 79.1), Optional(ElementsAre("train/micro_batch=1", "ranks/trainer_sp=2")));
  EXPECT_EQ(Changes(Role::kTrainer, 20), std::nullopt) << "the base alone is larger";
}

TEST_F(QwenImage, AdviceForAllWeightsTrained) {
  config_.lora = {};
  config_.sampler.batch = 4;
  EXPECT_THAT(Changes(Role::kTrainer, 139.8), Optional(ElementsAre("train/shard_weights=true")));
  EXPECT_THAT(Changes(Role::kTrainer, 79.1), Optional(ElementsAre("train/shard_weights=true", "ranks/trainers=16")));
  EXPECT_EQ(Changes(Role::kTrainer, 40), std::nullopt) << "the version for rollouts alone is 38 GiB";
  config_.sampler.batch = 128;
  EXPECT_THAT(Changes(Role::kExplorer, 79.1), Optional(ElementsAre("sampler/batch=64")));
}

TEST_F(QwenImage, AForwardPassIsTheReferencesWork) {
  EXPECT_NEAR(ForwardFlops(model_, 1024, 64) / 1e12, 14.8 + 0.9, 0.1);
  EXPECT_NEAR(ForwardFlops(model_, 6400, 64) / 1e12, 87.8 + 30.8, 0.2);
}

}  // namespace
}  // namespace spotlight
