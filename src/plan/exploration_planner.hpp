// How much exploration fits beside the next training phase, and which kind of it pays: the planner of the paper, with
// our own constants (those of the paper are unknown).
//
//   budget   B = (1 - margin) (training seconds - seconds to push weights), both moving averages
//   feasible F = { arms with Seconds(arm) <= B }            the cost model's estimate on the slots that live now
//   choice   the bandit's, among the arms of F that no other of F matches in seeds and in steps; none if F is empty
//   reward   mean over prompts of the deviation of the fresh rewards of the kept seeds, after their rollout
//
// Exploration within the budget is free, more seeds can only give more to choose from and more steps a better order: so
// a dominated arm has nothing to offer, and leaving it out spares the pulls to find that out (docs/algorithm.md).
//
// The margin widens when an arm did not fit and narrows slowly while arms do. A fixed arm (planner = fixed) is the
// unplanned baseline: it is played whether it fits or not. Times come from measurements, so two runs differ; with equal
// observations and state, decisions are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "config/config.hpp"
#include "plan/arms.hpp"
#include "plan/bandit.hpp"
#include "plan/cost_model.hpp"

namespace spotlight {

struct PlannerOptions {
  BanditOptions bandit;
  std::vector<Arm> arms;   // the grid, or the one fixed arm; not empty, sorted, each once
  int steps = 10;          // T
  double margin = 0.05;    // least, in [0, 1)
  bool dominated = false;  // arms compete that another feasible one matches in seeds and in steps

  // As explore/* and sampler/steps say. Where a cache decides by itself which steps are real (explore/cache = tea,
  // first_block), arms differ in seeds alone and have T steps; batches are then to be reported as if all their passes
  // were real, so that c_forward is the mean pass.
  static PlannerOptions From(const Config& config);
};

struct ArmOption {
  Arm arm;
  double seconds = 0;     // NaN: nothing measured yet
  bool feasible = false;  // known to fit
  double score = 0;       // the bandit's (see ArmBandit::Scores); NaN: does not compete
};

struct Decision {
  std::uint32_t iteration = 0;     // whose seeds are explored
  double budget = 0;               // seconds; NaN: nothing measured yet
  std::vector<ArmOption> options;  // all arms, in the order of PlannerOptions
  Arm chosen;                      // {0, 0}: no exploration
};

// What became of a decision, known after the rollout of its iteration.
struct ArmOutcome {
  std::uint32_t iteration = 0;
  Arm arm;
  std::size_t wanted = 0;  // seeds, of all prompts together
  std::size_t scored = 0;  // of these before the cut
  double spread = 0;       // reward, see above; >= 0 and finite
};

class ExplorationPlanner {
 public:
  explicit ExplorationPlanner(PlannerOptions options);

  // Of a finished batch.
  void ObserveBatch(const CostReport& report) { costs_.Observe(report); }

  // After a training phase: its length, what of it the trainers spent on pushing the new weights, and whether seeds of
  // the arm were left unscored at its end although no slot was lost. Seconds >= 0 and finite (SPOTLIGHT_REQUIRE).
  void ObserveTraining(double train_seconds, double push_seconds, bool overran);

  // `prompts` and `slots` of the exploration for `iteration`. While the times are unknown the cheapest arm is chosen,
  // to learn them; without slots none.
  Decision Decide(int prompts, const SlotCounts& slots, std::uint32_t iteration) const;

  // Credits the arm with the share of its seeds that were scored, with nothing if under half. No arm: does nothing.
  // Each iteration at most once, in order; NaN or infinite rewards and arms that are not of the grid are the caller's
  // mistake (SPOTLIGHT_REQUIRE).
  void Credit(const ArmOutcome& outcome);

  // Everything that decisions depend on, the options aside, for checkpoints: [6 + 5 x arms + 5 x degrees].
  // Restore takes the state of a planner with other arms too: it forgets those that are gone.
  std::vector<double> State() const;
  void Restore(std::span<const double> state);

 private:
  // Places of the arms that compete, cheapest first; the cheapest alone while times are not `known`.
  std::vector<std::size_t> Offered(const Decision& decision, bool known) const;

  PlannerOptions options_;
  CostModel costs_;
  ArmBandit bandit_;
  double train_seconds_ = -1;  // moving averages; -1: not measured
  double push_seconds_ = -1;
  double margin_;
};

}  // namespace spotlight
