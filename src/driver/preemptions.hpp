// Plays a trace of preemptions on the spot ranks of the coordinator's machine ([spot] trace): notices are SIGTERM,
// losses SIGKILL; what comes back is a parked rank or, if there is none, a new spot job
// (spotlight --join).
//
// A place is one spot rank of the trace. At the start place i is the i-th explorer of the run; later the ranks that
// join take the places that have come back, in order.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "driver/roster.hpp"
#include "schedule/trace_player.hpp"

namespace spotlight {

class Preemptions {
 public:
  // explorers: of the first MPI job that are not parked, in order; at least one. host: the coordinator's.
  // start_seconds: that the run took before it was stopped and resumed.
  Preemptions(const Config& config, const SpotTrace& trace, const std::string& host,
              const std::vector<std::uint32_t>& explorers, double start_seconds);
  ~Preemptions();
  Preemptions(const Preemptions&) = delete;
  Preemptions& operator=(const Preemptions&) = delete;

  // Does what is due after `seconds` of the run, all its parts. The output of jobs that it starts goes to
  // RUN/logs/spot_jobs.log.
  void Play(Roster& roster, double seconds);

 private:
  struct Place {
    std::optional<std::uint32_t> rank;  // none: nobody is there
    bool awaited = false;               // a job that is to fill it has been started
  };

  void Seat(const Roster& roster);
  void Signal(Roster& roster, Place& place, int signal) const;
  void StartJob(int ranks);

  const Config& config_;
  std::string host_;
  std::vector<Place> places_;
  std::optional<TracePlayer> player_;
  std::uint32_t next_rank_ = 0;  // ranks from here on are newcomers
  std::vector<pid_t> jobs_;
};

}  // namespace spotlight
