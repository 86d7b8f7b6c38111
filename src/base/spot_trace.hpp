// A record of how spot nodes came and went: read by io/spot_trace.hpp, played by schedule/trace_player.hpp.
#pragma once

#include <vector>

namespace spotlight {

struct TraceEvent {
  double seconds = 0;  // after the start of the trace
  int node = -1;       // which; -1: the trace tells only how many
  int change = 0;      // +n: nodes came, -n: nodes were lost; 1 or -1 if the node is known
};

struct SpotTrace {
  std::vector<TraceEvent> events;  // in order of time; equal times are one event
  double seconds = 0;              // length of the trace
  int most_nodes = 0;              // at any time
};

}  // namespace spotlight
