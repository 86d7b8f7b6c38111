// Between two steps of a batch no kernel memory is made or freed: on a device each of it would wait for all kernels.
// The first step makes what the others use; a second batch makes nothing at all.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/runtime.hpp"
#include "kernels/operations.hpp"
#include "rollout/schedule.hpp"
#include "tests/model/baton_group.hpp"
#include "tests/rollout/shapes_model.hpp"

namespace spotlight {
namespace {

// The back end in use, with counters.
class CountedMemory {
 public:
  CountedMemory() : usual_(&ActiveOperations()), counted_(*usual_) {
    of_ = usual_;
    counted_.AllocateMemory = [](std::size_t bytes) {
      ++changes_;
      return of_->AllocateMemory(bytes);
    };
    counted_.FreeMemory = [](void* memory) {
      if (memory != nullptr) ++changes_;
      of_->FreeMemory(memory);
    };
    UseOperations(counted_);
  }
  ~CountedMemory() { UseOperations(*usual_); }

  static int Changes() { return changes_; }

 private:
  static inline const Operations* of_ = nullptr;
  static inline thread_local int changes_ = 0;  // of a rank
  const Operations* usual_;
  Operations counted_;
};

// What has changed of the kernels' memory since the first border of a batch.
class Watch : public StepBorder {
 public:
  void At(int steps, BatchStates* states) override {
    if (states != nullptr) {
      states->Start();
      states->Take();
    }
    if (steps == 1) Begin();
  }
  void Begin() {
    changes_ = CountedMemory::Changes();
    scratch_ = cuda::ScratchSize();
  }
  void ExpectNothing(const std::string& what) const {
    EXPECT_EQ(CountedMemory::Changes() - changes_, 0) << what << ": pieces of memory made or freed";
    EXPECT_EQ(cuda::ScratchSize() - scratch_, 0u) << what << ": growth of the scratch memory";
  }

 private:
  int changes_ = 0;
  std::size_t scratch_ = 0;
};

class StepLoop : public ShapesModel {
 protected:
  StepLoop() {
    config_.sampler.steps = 4;
    config_.sampler.guidance = 2;
  }

  // Two batches: prompts of different length, three requests and two.
  void Expect(const std::string& what, RequestKind kind, ModelWeights& model, std::uint32_t real_steps = 0,
              SequenceGroup* group = nullptr) {
    Sampler sampler(config_, SchedulerConfig{}, layout_, prompts_.conditions[0]);
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < 3; ++i) {
      requests.push_back({.kind = kind,
                          .prompt_index = 1 + i,
                          .seed = i,
                          .window_begin = 0,
                          .window_end = 3,
                          .real_steps = real_steps});
    }
    Watch watch;
    sampler.Denoise(model.Of({0, false}), requests, prompts_, group, {}, &watch);
    watch.ExpectNothing(what + ", after the first step");
    requests.pop_back();
    watch.Begin();
    sampler.Denoise(model.Of({0, false}), requests, prompts_, group);
    watch.ExpectNothing(what + ", a second batch");
  }

  Config config_;
  CountedMemory memory_;
};

TEST_F(StepLoop, MakesNoMemoryWithAllWeights) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  Expect("rollout", RequestKind::kRollout, model);
  Baton(2).Run([&](SequenceGroup& group) { Expect("in a group", RequestKind::kRollout, model, 0, &group); });
}

TEST_F(StepLoop, MakesNoMemoryWithAnAdapterAndATable) {
  layout_ = std::make_shared<const DitLayout>(ReadTransformerConfig(kShapesModel),
                                              LoraSettings{4, 8, {"to_q", "to_v", "to_add_out", "net.2"}});
  ModelWeights model(layout_, source_, Precision::kBf16, NetworkSigmas(config_, {}));
  model.Put({0, false}, InitialAdapter(*layout_, 1));
  Expect("rollout", RequestKind::kRollout, model);
}

TEST_F(StepLoop, MakesNoMemoryWithReusedSteps) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  using Cache = ExploreConfig::Cache;
  config_.explore.cache = Cache::kSteps;
  Expect("counted steps", RequestKind::kExplore, model, 2);
  for (const auto& [name, cache] : {std::pair("tea", Cache::kTea), std::pair("first block", Cache::kFirstBlock)}) {
    config_.explore.cache = cache;
    for (const double threshold : {0.0, 0.2, 1e9}) {
      config_.explore.cache_threshold = threshold;
      Expect(std::string(name) + " " + std::to_string(threshold), RequestKind::kExplore, model);
    }
  }
}

}  // namespace
}  // namespace spotlight
