// Public records of spot preemptions. The ending of the name tells the format:
//   .csv    "milliseconds,add|remove,node" a line (Bamboo, AWS)
//   .txt    "YYYY-MM-DD, HH:MM:SS, nodes" a line: a count that holds until the next one (Bamboo, Google Cloud)
//   .jsonl  [milliseconds, "add"|"remove"|"DONE", {"nodes": ["node", ...]}] a line (SpotServe)
//
// Blank lines are skipped. Every mistake is a UserError "file:line: the value, what is allowed": a line of another
// form, a time below zero or before that of the line above, a node that comes twice or goes without having come.
#pragma once

#include <string>

#include "base/spot_trace.hpp"

namespace spotlight {

SpotTrace ReadSpotTrace(const std::string& path);

}  // namespace spotlight
