// Who takes part in the run, as the coordinator sees it: every rank that said hello, what it is doing, and to what use
// its time is billed. Pure but for the numbers it is told: time comes in as an argument, in seconds.
//
// A rank is billed from its hello (a parked one from its first work) to its end. Its group's leader reports what the
// group's time went into; the rest is idle. What a lost rank did since the last report is lost time.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/messages.hpp"
#include "comm/roles.hpp"
#include "plan/ledger.hpp"

namespace spotlight {

struct RosterRank {
  Role role = Role::kExplorer;
  std::string host;
  std::uint32_t process = 0;
  bool parked = false;  // waits without work
  bool called = false;  // parked, and to be woken at its next pull; until it pulls for work
  int group = 0;        // ranks that it speaks for, as the last pull said; 0: it does not lead
  double arrived = 0;
  double billed_until = 0;
};

class Roster {
 public:
  explicit Roster(CostLedger& ledger);

  void Arrive(const Hello& hello, double now);
  bool Has(std::uint32_t rank) const { return ranks_.contains(rank); }
  // SPOTLIGHT_REQUIREs that it is here.
  RosterRank& At(std::uint32_t rank);
  const std::map<std::uint32_t, RosterRank>& ranks() const { return ranks_; }

  // Bills the time of a leader's group since its last report.
  void Report(const Pull& pull, double now);
  // Takes a rank off: `use` is what its time since the last report is billed as (kLost or kDraining).
  void Depart(std::uint32_t rank, Use use, double now);

  // Spot ranks that compute, but for groups whose leader is one of `without`; and ranks that ask for work.
  int explorers(const std::set<std::uint32_t>& without = {}) const;
  std::vector<int> Leaders() const;
  // Sizes of the spot ranks' groups.
  std::vector<int> Slots() const;
  // Calls the first parked rank that is not called yet. False: there is none.
  bool CallParked();

  // Numbers for the ranks of a spot job that joins; the first one. They are given once in a run.
  std::uint32_t Reserve(std::uint32_t ranks);
  // How long a host must wait before it may join again: it has lost ranks right after they came (flapping). `base`:
  // seconds after the first such loss; doubles with each, up to 64 times; forgotten once a rank of it has stayed.
  double CoolDown(const std::string& host, double base, double now) const;

  struct Counts {
    int arrived = 0, lost = 0, left = 0, regroups = 0, joins = 0;  // of spot ranks, in the life of the run
  };
  Counts counts;

 private:
  void Bill(std::uint32_t rank, Use use, double seconds);

  struct Flapping {
    int losses = 0;
    double last = 0;
  };

  CostLedger& ledger_;
  std::map<std::string, Flapping> flapping_;  // by host
  std::map<std::uint32_t, RosterRank> ranks_;
  std::uint32_t next_rank_;
};

}  // namespace spotlight
