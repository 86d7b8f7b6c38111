// What the run costs: rank-seconds by pool (reserved or spot) and use, priced; and how much of it was of use.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "config/config.hpp"

namespace spotlight {

enum class Pool { kReserved, kSpot };
// The order is that of checkpoints and of run.h5: append only.
enum class Use {
  kRollout,
  kExploration,
  kEvaluation,
  kTraining,
  kIdle,      // alive, nothing to do
  kRegroup,   // forming new groups, fetching weights for it
  kDraining,  // between the notice and the end
  kLost,      // after the last report of a rank that was lost: done again by others
};
inline constexpr std::size_t kPools = 2;
inline constexpr std::size_t kUses = 8;

std::string_view PoolName(Pool pool);  // "reserved", "spot"
std::string_view UseName(Use use);     // "rollout", "exploration", ... as in Use

class CostLedger {
 public:
  explicit CostLedger(const CostConfig& prices);

  // seconds >= 0 and finite (SPOTLIGHT_REQUIRE).
  void Add(Pool pool, Use use, double seconds);

  // Denoising steps of requests: `useful` that were kept, `all` that were done. Reported apart, as a request's steps
  // turn out to be useful later than they are done. Both >= 0 and finite (SPOTLIGHT_REQUIRE).
  void AddSteps(double useful, double all);
  double useful_steps() const { return useful_steps_; }
  double all_steps() const { return all_steps_; }
  // useful / all, at most 1; 1 before the first step.
  double Goodput() const { return all_steps_ > useful_steps_ ? useful_steps_ / all_steps_ : 1; }

  double Seconds(Pool pool, Use use) const;
  double Seconds(Pool pool) const;
  double Cost(Pool pool, Use use) const;
  double Cost(Pool pool) const;
  double Cost() const;
  // What the same rank-seconds would have cost at the reserved price.
  double CostAllReserved() const;

  // Lines of text, a row a use and a row of totals: seconds and cost of both pools, share of the total cost; below them
  // the goodput.
  std::string Table() const;

 private:
  std::array<double, kPools> per_hour_;
  std::string currency_;
  std::array<std::array<double, kUses>, kPools> seconds_{};
  double useful_steps_ = 0;
  double all_steps_ = 0;
};

}  // namespace spotlight
