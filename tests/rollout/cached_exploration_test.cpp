// Explored requests that reuse steps: which steps are computed, what a border offers, and that results depend neither
// on the batch, nor on the group, nor on interruptions.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "rollout/skip_schedule.hpp"
#include "tests/model/baton_group.hpp"
#include "tests/rollout/shapes_model.hpp"

namespace spotlight {
namespace {

std::vector<int> Computed(int steps, int real) {
  std::vector<int> computed;
  const std::vector<bool> schedule = SkipSchedule(steps, real);
  for (int i = 0; i < std::ssize(schedule); ++i) {
    if (schedule[static_cast<std::size_t>(i)]) computed.push_back(i);
  }
  return computed;
}

TEST(SkipSchedule, ComputesTheFirstStepAndSoManyInAll) {
  for (const int steps : {1, 2, 3, 10, 28, 50, 1000}) {
    for (int real = 1; real <= steps; ++real) {
      const std::vector<int> computed = Computed(steps, real);
      ASSERT_EQ(std::ssize(computed), real) << steps;
      EXPECT_EQ(computed[0], 0);
      EXPECT_EQ(std::ssize(SkipSchedule(steps, real)), steps);
    }
  }
}

TEST(SkipSchedule, IsDenseAtTheStart) {
  EXPECT_EQ(Computed(10, 3), (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(Computed(10, 5), (std::vector<int>{0, 1, 2, 4, 6}));
  EXPECT_EQ(Computed(10, 6), (std::vector<int>{0, 1, 2, 3, 4, 6}));
  EXPECT_EQ(Computed(20, 8), (std::vector<int>{0, 2, 4, 6, 8, 10, 12, 14}));
}

TEST(SkipSchedule, RefusesWhatIsNoNumberOfSteps) {
  EXPECT_THROW(SkipSchedule(10, 0), InternalError);
  EXPECT_THROW(SkipSchedule(10, 11), InternalError);
}

// At each border: whether it may be resumed there.
class Offers : public StepBorder {
 public:
  void At(int steps, BatchStates* states) override {
    ++borders;
    if (states != nullptr) offered.push_back(steps);
  }
  int borders = 0;
  std::vector<int> offered;
};

class CachedExploration : public ShapesModel {
 protected:
  CachedExploration() {
    config_.sampler.steps = 8;
    model_.Put({0, false}, weights_);
  }

  std::vector<Denoised> Denoise(const std::vector<Request>& requests, StepBorder* border = nullptr,
                                const std::vector<DenoiseState>& states = {}, SequenceGroup* group = nullptr) {
    Sampler sampler(config_, SchedulerConfig{}, layout_, {});
    std::vector<Denoised> denoised = sampler.Denoise(model_.Of({0, false}), requests, prompts_, group, states, border);
    times_ = sampler.times();
    return denoised;
  }

  static std::vector<Request> Requests(std::uint32_t real_steps, RequestKind kind = RequestKind::kExplore) {
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < 3; ++i) {
      requests.push_back({.kind = kind,
                          .prompt_index = i,
                          .seed = 7 + i,
                          .window_begin = 2,
                          .window_end = 5,
                          .real_steps = real_steps});
    }
    return requests;
  }

  Config config_;
  ModelWeights model_{layout_, source_, Precision::kFp32, {}};
  BatchTimes times_;
};

TEST_F(CachedExploration, RunsTheNetworkAsOftenAsAsked) {
  const std::vector<Denoised> full = Denoise(Requests(0, RequestKind::kRollout));
  for (const std::uint32_t real : {0u, 8u, 9u}) {
    EXPECT_EQ(Denoise(Requests(real))[1].latents, full[1].latents) << "all steps are computed";
    EXPECT_EQ(times_.real_passes, 8u);
    EXPECT_EQ(times_.cached_passes, 0u);
  }
  std::set<std::vector<float>> different{full[1].latents};
  for (const std::uint32_t real : {1u, 3u, 6u}) {
    different.insert(Denoise(Requests(real))[1].latents);
    EXPECT_EQ(times_.real_passes, real);
    EXPECT_EQ(times_.cached_passes, 8 - real);
    EXPECT_EQ(times_.requests, 3u);
    EXPECT_EQ(times_.degree, 1u);
    EXPECT_GT(times_.real_seconds / real, times_.cached_seconds / (8 - real));
  }
  EXPECT_EQ(different.size(), 4u);
}

TEST_F(CachedExploration, OnlyExplorationReusesSteps) {
  for (const RequestKind kind : {RequestKind::kRollout, RequestKind::kEvaluate}) {
    config_.explore = {};
    const std::vector<Denoised> full = Denoise(Requests(0, kind));
    for (const auto cache :
         {ExploreConfig::Cache::kSteps, ExploreConfig::Cache::kTea, ExploreConfig::Cache::kFirstBlock}) {
      config_.explore.cache = cache;
      config_.explore.cache_threshold = 1e9;
      EXPECT_EQ(Denoise(Requests(3, kind))[2].latents, full[2].latents);
      EXPECT_EQ(times_.cached_passes, 0u);
    }
  }
}

TEST_F(CachedExploration, ASampleDoesNotDependOnItsBatchOrItsGroup) {
  const std::vector<Request> requests = Requests(4);
  const std::vector<Denoised> all = Denoise(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(Denoise({requests[i]})[0].latents, all[i].latents);
  Baton(2).Run([&](SequenceGroup& group) {
    EXPECT_EQ(Denoise(requests, nullptr, {}, &group)[2].latents, all[2].latents);
    EXPECT_EQ(times_.degree, 2u);
  });
  std::vector<Request> mixed = requests;
  mixed[1].real_steps = 5;
  EXPECT_THROW(Denoise(mixed), InternalError);
}

TEST_F(CachedExploration, ResumesWhereTheNextStepIsComputedWithTheSameBits) {
  const std::vector<Request> requests = Requests(4);
  Offers offers;
  const std::vector<Denoised> whole = Denoise(requests, &offers);
  std::vector<int> starts = Computed(8, 4);
  starts.erase(starts.begin());
  EXPECT_EQ(offers.borders, 7);
  EXPECT_EQ(offers.offered, starts);
  for (const int border : starts) {
    StopAt stop(border);
    EXPECT_THROW(Denoise(requests, &stop), StopAt::PeerStopped);
    ASSERT_EQ(stop.committed.size(), requests.size());
    const std::vector<Denoised> resumed = Denoise(requests, nullptr, stop.committed);
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(resumed[i].latents, whole[i].latents) << border;
    for (DenoiseState& state : stop.committed) ++state.steps;
    if (!SkipSchedule(8, 4)[static_cast<std::size_t>(border) + 1]) {
      EXPECT_THROW(Denoise(requests, nullptr, stop.committed), InternalError);
    }
  }
}

TEST_F(CachedExploration, GatedFormsReuseStepsAndOfferNothing) {
  const std::vector<Denoised> full = Denoise(Requests(0));
  for (const auto cache : {ExploreConfig::Cache::kTea, ExploreConfig::Cache::kFirstBlock}) {
    const bool tea = cache == ExploreConfig::Cache::kTea;
    config_.explore.cache = cache;
    config_.explore.cache_threshold = 1e9;
    Offers offers;
    Denoise(Requests(0), &offers);
    EXPECT_EQ(offers.borders, 7);
    EXPECT_TRUE(offers.offered.empty());
    EXPECT_EQ(times_.real_passes, tea ? 2u : 1u) << "the first, and of TeaCache the last";
    config_.explore.cache_threshold = 0;
    EXPECT_EQ(Denoise(Requests(0))[0].latents, full[0].latents);
    EXPECT_EQ(times_.real_passes, 8u);
  }
}

}  // namespace
}  // namespace spotlight
