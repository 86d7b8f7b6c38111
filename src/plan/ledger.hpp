// What the run costs: rank-seconds by pool (reserved or spot) and use, priced.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "config/config.hpp"

namespace spotlight {

enum class Pool { kReserved, kSpot };
enum class Use { kRollout, kExploration, kEvaluation, kTraining, kIdle };
inline constexpr std::size_t kPools = 2;
inline constexpr std::size_t kUses = 5;

std::string_view PoolName(Pool pool);  // "reserved", "spot"
std::string_view UseName(Use use);     // "rollout", "exploration", "evaluation", "training", "idle"

class CostLedger {
 public:
  explicit CostLedger(const CostConfig& prices);

  // seconds >= 0 and finite (SPOTLIGHT_REQUIRE).
  void Add(Pool pool, Use use, double seconds);

  double Seconds(Pool pool, Use use) const;
  double Seconds(Pool pool) const;
  double Cost(Pool pool, Use use) const;
  double Cost(Pool pool) const;
  double Cost() const;
  // What the same rank-seconds would have cost at the reserved price.
  double CostAllReserved() const;

  // Lines of text, a row a use and a row of totals: seconds and cost of both pools, share of the total cost.
  std::string Table() const;

 private:
  std::array<double, kPools> per_hour_;
  std::string currency_;
  std::array<std::array<double, kUses>, kPools> seconds_{};
};

}  // namespace spotlight
