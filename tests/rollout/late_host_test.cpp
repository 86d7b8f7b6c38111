// Copies to the host that come late, as a device's do (kernels/stream.hpp): results, and states that are taken later
// than at their border, are those of copies at once, bit for bit.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/kernels/changed_back_end.hpp"
#include "tests/kernels/late_copy.hpp"
#include "tests/rollout/short_batches.hpp"

namespace spotlight {
namespace {

// Takes the states of each border at the next one, or at once.
class TakeStates : public StepBorder {
 public:
  explicit TakeStates(bool at_once) : at_once_(at_once) {}
  void At(int /*steps*/, BatchStates* states) override {
    Take();
    states_ = states;
    if (states == nullptr) return;
    states->Start();
    if (at_once_) Take();
  }
  void Take() {
    if (states_ == nullptr) return;
    late += states_->Ready() ? 0 : 1;
    taken.push_back(states_->Take());
    states_ = nullptr;
  }
  std::vector<std::vector<DenoiseState>> taken;
  int late = 0;

 private:
  bool at_once_;
  BatchStates* states_ = nullptr;
};

// Exact; NaN differs from itself.
void ExpectSame(const DenoiseState& a, const DenoiseState& b, const std::string& what) {
  EXPECT_EQ(a.steps, b.steps) << what;
  EXPECT_EQ(a.latents, b.latents) << what;
  EXPECT_EQ(a.trajectory, b.trajectory) << what;
  EXPECT_EQ(a.log_probs, b.log_probs) << what;
}

using LateHost = ShortBatches;

TEST_F(LateHost, StatesTakenOneBorderLaterAreThoseOfTheirBorder) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  Parameters& parameters = model.Of({0, false});
  const std::vector<Request> requests = Requests(RequestKind::kRollout, 2);
  const ChangedBackEnd late([](Operations& operations) { operations.MakeHostCopy = &MakeLateCopy; });
  TakeStates at_once(true), later(false);
  Sampler sampler = MakeSampler();
  const std::vector<Denoised> whole = sampler.Denoise(parameters, requests, prompts_, nullptr, {}, &at_once);
  ExpectSame(sampler.Denoise(parameters, requests, prompts_, nullptr, {}, &later), whole, "whole");
  later.Take();  // of the last border, after the batch
  ASSERT_EQ(at_once.taken.size(), 5u);
  ASSERT_EQ(later.taken.size(), 5u);
  EXPECT_EQ(later.late, 5);
  for (std::size_t i = 0; i < later.taken.size(); ++i) {
    const std::string border = "border " + std::to_string(i + 1);
    for (std::size_t b = 0; b < requests.size(); ++b) ExpectSame(later.taken[i][b], at_once.taken[i][b], border);
    ExpectSame(sampler.Denoise(parameters, requests, prompts_, nullptr, later.taken[i]), whole, border);
  }
}

TEST_F(LateHost, StatesAreStartedOnceAndTakenOnce) {
  struct Misuse : StepBorder {
    void At(int, BatchStates* states) override {
      EXPECT_THROW(states->Take(), InternalError);
      states->Start();
      EXPECT_THROW(states->Start(), InternalError);
      states->Take();
      EXPECT_THROW(states->Take(), InternalError);
    }
  } misuse;
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  MakeSampler().Denoise(model.Of({0, false}), Requests(RequestKind::kRollout, 1), prompts_, nullptr, {}, &misuse);
}

// Names of phases as they begin, and "" where one ends.
TEST_F(LateHost, EachPassIsAPhase) {
  ModelWeights model(layout_, source_, Precision::kFp32, {});
  model.Put({0, false}, weights_);
  static std::vector<std::string> seen;
  seen.clear();
  const ChangedBackEnd noted([](Operations& operations) {
    operations.BeginPhase = [](const char* name) { seen.emplace_back(name); };
    operations.EndPhase = [] { seen.emplace_back(); };
  });
  MakeSampler().Denoise(model.Of({0, false}), Requests(RequestKind::kExplore, 1, 3), prompts_);
  EXPECT_EQ(seen, (std::vector<std::string>{"real pass", "", "real pass", "", "cached pass", "", "real pass", "",
                                            "cached pass", "", "cached pass", ""}));
}

}  // namespace
}  // namespace spotlight
