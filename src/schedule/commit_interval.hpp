// How many denoising steps to do between two commits of a request's state.
#pragma once

namespace spotlight {

struct CommitCost {
  double step_seconds = 0;       // of one denoising step of a batch, > 0
  double commit_seconds = 0;     // that the worker itself spends on a commit, >= 0
  double losses_per_second = 0;  // measured chance of the worker to be lost, >= 0
};

inline constexpr double kCommitOverhead = 0.005;  // the largest share of the denoising time that commits may take

// After every step as long as that costs no more than kCommitOverhead. Otherwise Young's interval (J. W. Young, "A
// first order approximation to the optimum checkpoint interval", CACM 17(9), 1974: seconds = sqrt(2 C / lambda), with
// the cost C of a commit and the rate lambda of losses), but so long that the overhead stays allowed. In [1, steps];
// `steps` >= 1 of a request. Values out of range are our bug (SPOTLIGHT_REQUIRE).
int StepsBetweenCommits(const CommitCost& cost, int steps);

}  // namespace spotlight
