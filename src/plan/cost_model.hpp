// How long an arm takes on the slots that live: learnt from the reports of finished batches of explored requests.
// Other batches have other sizes and no cached steps, so they count only until there is a report of exploration.
//
// One request costs  s = e c_forward + (T - e) c_cached + c_decode + c_reward  seconds of its slot; the c are moving
// averages per sequence-parallel degree. Slots pull requests until none is left, so P n requests take
// ceil(P n / slots) s on equal slots; slots of several degrees each take a request whenever they are free.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "plan/arms.hpp"

namespace spotlight {

// Live slots (SP groups that explore) by their SP degree.
using SlotCounts = std::map<int, int>;

// From one degree a slot.
SlotCounts CountSlots(std::span<const int> degrees);

// What a batch of requests took on one slot. Seconds are wall time of the slot; a pass is one denoising step
// of one request, guidance included, so a batch of 4 requests with 6 real steps has 24 real passes.
struct CostReport {
  int degree = 1;
  double requests = 0;
  double real_passes = 0;
  double real_seconds = 0;
  double cached_passes = 0;
  double cached_seconds = 0;
  double decode_seconds = 0;
  double reward_seconds = 0;  // only what the slot waited for
  bool explored = true;       // false: rollouts or evaluation images
};

class CostModel {
 public:
  // steps: T, denoising steps of a request.
  explicit CostModel(int steps) : steps_(steps) {}

  // All fields >= 0 and finite, degree >= 1 (SPOTLIGHT_REQUIRE). Parts without passes or requests say nothing.
  void Observe(const CostReport& report);

  // Seconds until all seeds of `prompts` prompts are scored; infinite without slots. Empty: no forward was measured
  // yet. A degree without measurements is taken to be as efficient as the next larger one that has them, else the
  // largest (half the degree, double the seconds of a pass); a cached pass without, as 1/20 of a real one.
  std::optional<double> Seconds(const Arm& arm, int prompts, const SlotCounts& slots) const;

  // [1 + degrees x 5]: 1 once exploration was reported, else 0; then of each degree: it, seconds of a real pass, a
  // cached pass, a decoding, a reward; -1: not measured.
  std::vector<double> State() const;
  void Restore(std::span<const double> state);

 private:
  static constexpr double kUnknown = -1;

  struct Costs {
    double forward = kUnknown;
    double cached = kUnknown;
    double decode = kUnknown;
    double reward = kUnknown;
  };

  double RequestSeconds(const Arm& arm, int degree) const;

  int steps_;
  bool explored_ = false;       // costs_ are of exploration
  std::map<int, Costs> costs_;  // by degree; only degrees with a measured forward
};

}  // namespace spotlight
