// Passes whose launches were recorded at an earlier step (kernels/recordings.hpp), in the emulation, where a recorded
// launch does not run before its replay: results are those of passes that are launched, bit for bit. So nothing in the
// blocks of a step depends on the host's work between launches.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rollout/schedule.hpp"
#include "tests/kernels/changed_back_end.hpp"
#include "tests/kernels/cuda_on_cpu.hpp"
#include "tests/rollout/short_batches.hpp"

namespace spotlight {
namespace {

// How often launches were recorded, and run again.
class CountedRecordings {
 public:
  static std::unique_ptr<LaunchGraph> Record(const std::function<void()>& launches) {
    ++recorded;
    return std::make_unique<Counted>(of->Record(launches));
  }
  static inline const Operations* of = nullptr;
  static inline int recorded = 0, replayed = 0;

 private:
  class Counted : public LaunchGraph {
   public:
    explicit Counted(std::unique_ptr<LaunchGraph> recording) : recording_(std::move(recording)) {}
    void Replay() override {
      ++replayed;
      recording_->Replay();
    }

   private:
    std::unique_ptr<LaunchGraph> recording_;
  };
};

class ReplayedSteps : public ShortBatches {
 protected:
  // Batches in turn by one sampler, compared with those of samplers of their own on a back end that records nothing.
  struct Batch {
    std::vector<Request> requests;
    int replayed;  // passes that run a recording, the pass that made it included
  };
  void Expect(ModelWeights& model, const std::vector<Batch>& batches, int recorded) {
    const ChangedBackEnd cuda([](Operations& operations) { operations = CudaOnCpuOperations(); });
    Parameters& parameters = model.Of({0, false});
    std::vector<std::vector<Denoised>> expected;
    {
      const ChangedBackEnd plain([](Operations& operations) { operations.records = false; });
      for (const Batch& batch : batches) {
        expected.push_back(MakeSampler().Denoise(parameters, batch.requests, prompts_));
      }
    }
    CountedRecordings::of = &ActiveOperations();
    CountedRecordings::recorded = 0;
    const ChangedBackEnd counted([](Operations& operations) { operations.Record = &CountedRecordings::Record; });
    Sampler sampler = MakeSampler();
    for (std::size_t i = 0; i < batches.size(); ++i) {
      CountedRecordings::replayed = 0;
      const std::vector<Denoised> denoised = sampler.Denoise(parameters, batches[i].requests, prompts_);
      ExpectSame(denoised, expected[i], "batch " + std::to_string(i));
      EXPECT_EQ(CountedRecordings::replayed, batches[i].replayed) << "batch " << i;
    }
    EXPECT_EQ(CountedRecordings::recorded, recorded);
  }
};

TEST_F(ReplayedSteps, HaveTheBitsOfStepsThatAreLaunched) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  const std::vector<Request> two = Requests(RequestKind::kRollout, 2), one = Requests(RequestKind::kRollout, 1);
  Expect(model, {{two, 5}, {one, 5}, {two, 6}}, 2);
}

TEST_F(ReplayedSteps, WithGuidanceAnAdapterAndATable) {
  layout_ = std::make_shared<const DitLayout>(ReadTransformerConfig(kShapesModel),
                                              LoraSettings{4, 8, {"to_q", "to_v", "to_add_out", "net.2"}});
  config_.sampler.guidance = 2;
  config_.eval.steps = 4;
  ModelWeights model(layout_, source_, Precision::kBf16, NetworkSigmas(config_, {}));
  std::vector<float> adapter = InitialAdapter(*layout_, 1);
  for (std::size_t i = 0; i < adapter.size(); ++i) adapter[i] += 0.01f * static_cast<float>(i % 7);  // B too
  model.Put({0, false}, adapter);
  Expect(model,
         {{Requests(RequestKind::kRollout, 2), 5}, {Requests(RequestKind::kEvaluate, 1), config_.eval.steps - 1}}, 2);
}

TEST_F(ReplayedSteps, WhereOnlySomeStepsAreComputed) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  Expect(model, {{Requests(RequestKind::kExplore, 2, 4), 3}, {Requests(RequestKind::kExplore, 2, 4), 4}}, 1);
}

TEST_F(ReplayedSteps, AreLaunchedAnewWhenMemoryHasGone) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  const std::vector<Request> one = Requests(RequestKind::kRollout, 1), three = Requests(RequestKind::kRollout, 3);
  Expect(model, {{one, 5}, {three, 5}, {one, 5}}, 3);  // three samples need larger buffers
}

}  // namespace
}  // namespace spotlight
