// Plays a trace of spot preemptions on the spot ranks of a run: when to warn, to kill and to bring back which rank.
//
// One node of the trace stands for `ranks_per_node` spot ranks, which share their fate. A trace with named nodes keeps
// its rate of losses: a node that comes takes a free place, or none if there is none; its loss empties that place. A
// trace of counts is scaled: count c of at most m becomes round(c n / m) of n places; who goes is drawn with the seed.
// At the start all ranks are there; those without a node at that instant are killed at once, without notice: what the
// trace did before, to a part of the run that was stopped, has no other trace. Pure and deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/spot_trace.hpp"

namespace spotlight {

struct TraceRules {
  int ranks = 0;              // spot ranks, numbered from 0; >= 1
  int ranks_per_node = 1;     // >= 1; the last node has fewer if they do not divide `ranks`
  double time_scale = 1;      // seconds of the trace that pass in one second of the run, > 0
  double notice_seconds = 0;  // of the run, between the notice and the loss, >= 0
  double start_seconds = 0;   // of the run when it goes on; 0: it is new
  std::uint64_t seed = 0;
};

struct SpotAction {
  enum class Kind : std::uint8_t { kNotice, kKill, kReturn };
  double seconds = 0;  // of the run, all its parts
  Kind kind = Kind::kKill;
  int rank = 0;  // spot rank
  friend bool operator==(const SpotAction&, const SpotAction&) = default;
};

class TracePlayer {
 public:
  // Rules out of range are our bug (SPOTLIGHT_REQUIRE).
  TracePlayer(const SpotTrace& trace, const TraceRules& rules);

  // What has become due at `now` (seconds of the run) and was not returned yet, in order of time; but no rank comes
  // that is to be killed by now.
  std::vector<SpotAction> Due(double now);
  bool finished() const { return next_ == actions_.size(); }
  // All of it, for a plan or a test.
  const std::vector<SpotAction>& actions() const { return actions_; }

 private:
  std::vector<SpotAction> actions_;  // in order of time
  std::size_t next_ = 0;
};

}  // namespace spotlight
