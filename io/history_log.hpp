// history.jsonl: one JSON object a step, {"step": 12, "reward_mean": 0.41, ...}, for `tail -f` and jq.
//
// A line is one write; NaN and infinities are null. FileError where the file cannot be written.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace spotlight {

class HistoryLog {
 public:
  // Appends to an existing file; an unfinished last line (a kill in the middle of a write) is cut off.
  explicit HistoryLog(const std::string& path);

  void Append(std::int64_t step, const std::map<std::string, double>& values);
  // Drops lines with a step greater than `step` (on resume).
  void TruncateAfter(std::int64_t step);

 private:
  std::string path_;
};

}  // namespace spotlight
