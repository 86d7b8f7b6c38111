#include "plan/ledger.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::array<Use, kUses> kAllUses = {Use::kRollout, Use::kExploration, Use::kEvaluation, Use::kTraining,
                                             Use::kIdle,    Use::kRegroup,     Use::kDraining,   Use::kLost};

std::size_t Index(Pool pool) { return static_cast<std::size_t>(pool); }
std::size_t Index(Use use) { return static_cast<std::size_t>(use); }

}  // namespace

std::string_view PoolName(Pool pool) { return pool == Pool::kReserved ? "reserved" : "spot"; }

std::string_view UseName(Use use) {
  constexpr std::array<std::string_view, kUses> kNames = {"rollout", "exploration", "evaluation", "training",
                                                          "idle",    "regroup",     "draining",   "lost"};
  return kNames[Index(use)];
}

CostLedger::CostLedger(const CostConfig& prices)
    : per_hour_{prices.reserved_per_hour, prices.spot_per_hour}, currency_(prices.currency) {}

void CostLedger::Add(Pool pool, Use use, double seconds) {
  SPOTLIGHT_REQUIRE(std::isfinite(seconds) && seconds >= 0, fmt::format("{} s of {}", seconds, UseName(use)));
  seconds_[Index(pool)][Index(use)] += seconds;
}

void CostLedger::AddSteps(double useful, double all) {
  SPOTLIGHT_REQUIRE(std::isfinite(useful + all) && useful >= 0 && all >= 0,
                    fmt::format("{} useful of {}", useful, all));
  useful_steps_ += useful;
  all_steps_ += all;
}

double CostLedger::Seconds(Pool pool, Use use) const { return seconds_[Index(pool)][Index(use)]; }

double CostLedger::Seconds(Pool pool) const {
  const auto& seconds = seconds_[Index(pool)];
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double CostLedger::Cost(Pool pool, Use use) const { return Seconds(pool, use) / 3600 * per_hour_[Index(pool)]; }

double CostLedger::Cost(Pool pool) const { return Seconds(pool) / 3600 * per_hour_[Index(pool)]; }

double CostLedger::Cost() const { return Cost(Pool::kReserved) + Cost(Pool::kSpot); }

double CostLedger::CostAllReserved() const {
  return (Seconds(Pool::kReserved) + Seconds(Pool::kSpot)) / 3600 * per_hour_[Index(Pool::kReserved)];
}

std::string CostLedger::Table() const {
  const double total = Cost();
  std::string text =
      fmt::format("{:<12} {:>13} {:>9} {:>13} {:>7}\n", "use", "reserved s", "spot s", "cost " + currency_, "share");
  const auto row = [&](std::string_view name, double reserved, double spot, double cost) {
    text += fmt::format("{:<12} {:>13.1f} {:>9.1f} {:>13.5f} {:>6.1f}%\n", name, reserved, spot, cost,
                        total > 0 ? 100 * cost / total : 0);
  };
  for (const Use use : kAllUses) {
    row(UseName(use), Seconds(Pool::kReserved, use), Seconds(Pool::kSpot, use),
        Cost(Pool::kReserved, use) + Cost(Pool::kSpot, use));
  }
  row("total", Seconds(Pool::kReserved), Seconds(Pool::kSpot), total);
  text += fmt::format("goodput      {:.2f}% of {:.0f} denoising steps\n", 100 * Goodput(), all_steps_);
  return text;
}

}  // namespace spotlight
