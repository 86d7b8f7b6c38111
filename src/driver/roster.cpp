#include "driver/roster.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::uint32_t kFirstJoined = 1000;  // ranks of the first MPI job are below
constexpr double kStays = 30;                 // seconds after which a rank counts as having stayed
constexpr double kOneLoss = 0.5;              // losses within so many seconds are one

}  // namespace

Roster::Roster(CostLedger& ledger) : ledger_(ledger), next_rank_(kFirstJoined) {}

double Roster::CoolDown(const std::string& host, double base, double now) const {
  const auto found = flapping_.find(host);
  if (found == flapping_.end()) return 0;
  return std::max(0.0, found->second.last + base * std::exp2(std::min(found->second.losses - 1, 6)) - now);
}

void Roster::Arrive(const Hello& hello, double now) {
  RosterRank& rank = ranks_[hello.rank];
  rank = {.role = hello.role,
          .host = hello.host,
          .process = hello.process,
          .parked = hello.parked,
          .arrived = now,
          .billed_until = now};
  next_rank_ = std::max(next_rank_, hello.rank + 1);
  if (rank.role == Role::kExplorer) ++counts.arrived;
}

RosterRank& Roster::At(std::uint32_t rank) {
  const auto found = ranks_.find(rank);
  SPOTLIGHT_REQUIRE(found != ranks_.end(), "rank " + std::to_string(rank) + " has not said hello, or is lost");
  return found->second;
}

void Roster::Bill(std::uint32_t rank, Use use, double seconds) {
  if (seconds > 0) ledger_.Add(At(rank).role == Role::kExplorer ? Pool::kSpot : Pool::kReserved, use, seconds);
}

void Roster::Report(const Pull& pull, double now) {
  const double busy = std::accumulate(pull.busy_seconds.begin(), pull.busy_seconds.end(), 0.0);
  for (const std::uint32_t member : pull.members) {
    if (!Has(member)) continue;  // lost meanwhile: billed already
    RosterRank& rank = At(member);
    if (rank.parked) {
      rank.parked = rank.called = false;
      rank.billed_until = now - busy;
    }
    for (std::size_t use = 0; use < pull.busy_seconds.size(); ++use) {
      Bill(member, static_cast<Use>(use), pull.busy_seconds[use]);
    }
    Bill(member, Use::kIdle, now - rank.billed_until - busy);
    rank.billed_until = now;
    rank.group = member == pull.rank ? static_cast<int>(pull.members.size()) : 0;
  }
}

void Roster::Depart(std::uint32_t number, Use use, double now) {
  if (!Has(number)) return;
  const RosterRank& rank = At(number);
  if (!rank.parked) Bill(number, use, now - rank.billed_until);
  if (rank.role == Role::kExplorer) ++(use == Use::kLost ? counts.lost : counts.left);
  if (number >= kFirstJoined) {
    if (now - rank.arrived > kStays) {
      flapping_.erase(rank.host);
    } else if (use == Use::kLost && now - flapping_[rank.host].last > kOneLoss) {
      flapping_[rank.host] = {flapping_[rank.host].losses + 1, now};
    }
  }
  ranks_.erase(number);
}

int Roster::explorers(const std::set<std::uint32_t>& without) const {
  int count = 0;
  for (const auto& [number, rank] : ranks_) {
    if (rank.role != Role::kExplorer || rank.parked) continue;
    ++count;
    if (without.contains(number)) count -= std::max(1, rank.group);
  }
  return std::max(0, count);
}

std::vector<int> Roster::Leaders() const {
  std::vector<int> leaders;
  for (const auto& [number, rank] : ranks_) {
    if (rank.group > 0 && !rank.parked) leaders.push_back(static_cast<int>(number));
  }
  return leaders;
}

std::vector<int> Roster::Slots() const {
  std::vector<int> sizes;
  for (const auto& [number, rank] : ranks_) {
    if (rank.role == Role::kExplorer && rank.group > 0 && !rank.parked) sizes.push_back(rank.group);
  }
  return sizes;
}

bool Roster::CallParked() {
  for (auto& [number, rank] : ranks_) {
    if (!rank.parked || rank.called) continue;
    rank.called = true;
    return true;
  }
  return false;
}

std::uint32_t Roster::Reserve(std::uint32_t ranks) {
  const std::uint32_t first = next_rank_;
  next_rank_ += ranks;
  ++counts.joins;
  return first;
}

}  // namespace spotlight
