// TrainedWeights whose trainers exchange between their devices end with the bits of those that exchange through the
// host: weights, moments, average, and what a pass reads. All ranks but the coordinator train; their devices' messages
// go over MPI (tests/train/group_communicator.hpp).
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "comm/sp_group.hpp"
#include "comm/trainer_group.hpp"
#include "kernels/runtime.hpp"
#include "tests/train/group_communicator.hpp"
#include "train/trained_weights.hpp"

namespace spotlight {
namespace {

SpGroup* messages = nullptr;  // of the trainers

const DeviceConnector kConnector = {
    .Gpu = [] { return ProcessName(); },
    .MakeId = [] { return std::string("id"); },
    .Connect = [](const std::string& id, int index, int size, DeviceWaits) -> std::unique_ptr<DeviceCommunicator> {
      SPOTLIGHT_REQUIRE(id == "id" && index == messages->index() && size == messages->size(), "test");
      return std::make_unique<GroupCommunicator>(*messages);
    }};

std::vector<float> Normals(std::uint64_t stream, Index size) {
  std::vector<float> values(static_cast<std::size_t>(size));
  FillNormal(stream, 0, values);
  return values;
}

void Append(std::vector<float>& to, const float* values, Index size) { to.insert(to.end(), values, values + size); }

struct Kind {
  Precision precision = Precision::kFp32;
  bool shard_weights = false;
  int lora_rank = 0;
};

// Everything that two updates leave.
std::vector<float> Train(TrainerGroup& group, const Kind& kind, const ModelWeights& model,
                         const std::shared_ptr<const DitLayout>& layout) {
  Config config;
  config.train.shard_weights = kind.shard_weights;
  config.train.ema_decay = 0.9;
  config.train.weight_decay = 0.01;
  TrainedWeights trained(config, layout, model, group);
  trained.SetState(TrainedWeights::InitialState(config, Normals(7, model.trained_layout().size())));
  for (std::uint64_t update = 0; update < 2; ++update) {
    trained.ZeroGradient();
    Parameters& parameters = trained.parameters();
    for (const int part : layout->backward_order()) {
      if (part >= layout->used_parts(parameters.modulation != nullptr)) continue;
      const PartMemory memory = parameters.Use(part);
      const PartLayout& sizes = layout->parts()[static_cast<std::size_t>(part)];
      const bool lora = kind.lora_rank > 0;
      float* const gradient = lora ? memory.adapter_gradient : memory.vectors_gradient;
      const std::vector<float> added =
          Normals(StreamKey({update, static_cast<std::uint64_t>(part), static_cast<std::uint64_t>(group.index())}),
                  lora ? sizes.adapter : sizes.size());
      for (std::size_t i = 0; i < added.size(); ++i) gradient[i] += added[i];
      parameters.GradientDone(part);
    }
    trained.Update();
  }
  const OptimizerState state = trained.State();
  std::vector<float> all = state.weights;
  all.insert(all.end(), state.first_moment.begin(), state.first_moment.end());
  all.insert(all.end(), state.second_moment.begin(), state.second_moment.end());
  all.insert(all.end(), state.ema.begin(), state.ema.end());
  for (int part = 0; part < layout->used_parts(trained.parameters().modulation != nullptr); ++part) {
    const PartMemory memory = trained.parameters().Use(part);
    const PartLayout& sizes = layout->parts()[static_cast<std::size_t>(part)];
    if (kind.lora_rank > 0) {
      Append(all, memory.adapter, sizes.adapter);
    } else {
      Append(all, memory.vectors, sizes.vectors);
      for (Index i = 0; i < sizes.matrices; ++i) {
        all.push_back(memory.matrices.fp32 != nullptr ? memory.matrices.fp32[i] : ToFloat(memory.matrices.bf16[i]));
      }
    }
  }
  // Others take part in a state that they do not keep.
  SPOTLIGHT_REQUIRE(trained.Weights(group.index() == 0).empty() == (group.index() != 0), "test");
  return all;
}

int Run(int argc, char** argv) {
  World world(&argc, &argv, std::chrono::seconds(60));
  int code = kExitFinished;
  try {
    world.AssignRoles(world.size() - 1);
    if (world.role() == Role::kTrainer) {
      StartKernels(1);
      std::vector<int> ranks;
      for (int rank = 0; rank < world.size(); ++rank) {
        if (world.roles()[static_cast<std::size_t>(rank)] == Role::kTrainer) ranks.push_back(rank);
      }
      SpGroup exchange(world, ranks);
      messages = &exchange;
      TransformerConfig transformer;
      transformer.num_layers = 2;
      transformer.num_attention_heads = 2;
      transformer.attention_head_dim = 24;
      transformer.axes_dims_rope = {4, 10, 10};
      transformer.joint_attention_dim = 31;  // sizes that the trainers do not divide
      for (const Kind& kind : {Kind{}, Kind{.shard_weights = true}, Kind{.precision = Precision::kBf16},
                               Kind{.precision = Precision::kBf16, .shard_weights = true}, Kind{.lora_rank = 3}}) {
        LoraSettings lora{.rank = kind.lora_rank, .alpha = 4};
        if (kind.lora_rank > 0) lora.targets = {"to_q", "to_v"};
        const auto layout = std::make_shared<const DitLayout>(transformer, lora);
        const std::shared_ptr<const TensorSource> source =
            std::make_shared<WeightMapSource>(layout->base().ToWeightMap(Normals(2, layout->base().size())), "weights");
        const ModelWeights model(layout, source, kind.precision, {});
        TrainerGroup group(world);
        const std::vector<float> by_host = Train(group, kind, model, layout);
        const std::string reason = group.Connect(&kConnector);
        SPOTLIGHT_REQUIRE(reason.empty() && group.device() != nullptr, reason);
        const std::vector<float> by_device = Train(group, kind, model, layout);
        SPOTLIGHT_REQUIRE(by_host == by_device, "other bits");
        SPOTLIGHT_REQUIRE(static_cast<GroupCommunicator*>(group.device())->waits() > 10, "it was used");
      }
    }
  } catch (const WorldEnding& ending) {
    return world.Finish(ending.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = kExitInternal;
  }
  return world.Finish(world.AgreeExit(code));
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) { return spotlight::Run(argc, argv); }
