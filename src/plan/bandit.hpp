// Which arm to pull: a sleeping bandit whose arms' rewards drift, with baselines.
//
// kUcb is discounted UCB (Garivier and Moulines, arXiv 0805.3415) among the arms that are offered:
//
//   score_a = mean_a + c sqrt(2 ln N / N_a)
//
// N_a: pulls of arm a, each multiplied by `discount` at every later pull; N = sum of N_a; mean_a: average of its
// rewards with the same weights, divided by a slowly decaying maximum of all rewards, so that c means the same whatever
// their size. The division is made when scores are asked for: divided as they come, the rewards of the first arms would
// all be
// 1. An arm that was never pulled comes first.
//
// kThompson: the highest draw of a normal distribution with mean mean_a and deviation c / sqrt(N_a). kGreedy, kFixed:
// the highest mean. kRoundRobin: the arm that was not pulled for longest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config/config.hpp"

namespace spotlight {

using ArmRule = ExploreConfig::Planner;

struct BanditOptions {
  ArmRule rule = ArmRule::kUcb;
  double ucb = 0.03;       // c >= 0
  double discount = 0.98;  // in (0, 1]
  std::uint64_t run_seed = 0;
};

class ArmBandit {
 public:
  ArmBandit(std::size_t arms, const BanditOptions& options);

  // One score an arm of `offered` (indices). +infinity: never pulled. -infinity: its last pull was cut short of a
  // reward less than 20 iterations ago, so others go first, or the bandit would wait for it for ever. Depends on the
  // arguments and the state alone; `iteration` numbers Thompson's draws.
  std::vector<double> Scores(std::span<const std::size_t> offered, std::uint32_t iteration) const;

  // The outcome of a pull. weight in [0, 1]: how much of a pull it was; 0: cut short, `reward` is ignored.
  // reward >= 0 and finite (SPOTLIGHT_REQUIRE).
  void Credit(std::size_t arm, std::uint32_t iteration, double weight, double reward);

  // The decaying maximum; for each arm N_a, the weighted sum of rewards, the last pull's iteration or -1.
  std::vector<double> State() const;
  static std::size_t StateSize(std::size_t arms) { return 1 + 3 * arms; }
  // A saved state, perhaps of other arms. [arms] place of each arm in it; -1: new.
  void Restore(std::span<const double> state, std::span<const int> places);

 private:
  struct Record {
    double pulls = 0;    // N_a
    double rewards = 0;  // weighted sum
    double last = -1;    // iteration of the last pull
  };

  BanditOptions options_;
  double scale_ = 0;  // the decaying maximum; 0: no reward above 0 yet
  std::vector<Record> arms_;
};

}  // namespace spotlight
