// What the terminal shows while a run works: one line an iteration; on a terminal a redrawn bar below
// it, in a log file plain lines only.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace spotlight {

class Progress {
 public:
  explicit Progress(int iterations);

  // "rollout 48/64": redrawn in place on a terminal at most ten times a second, silent in a log until a phase lasts 30
  // s.
  void Phase(const std::string& what, std::size_t done, std::size_t total);
  // The iteration's line.
  void Step(int iteration, const std::map<std::string, double>& values, double seconds_left);
  // Any other line; on a terminal above the bar.
  void Line(const std::string& text);

 private:
  void ClearBar();

  int iterations_;
  bool terminal_;
  bool bar_shown_ = false;
  double last_reward_ = 0;
  bool has_last_reward_ = false;
  std::chrono::steady_clock::time_point last_shown_;
};

// "41 s", "2 min 10 s", "3 h 05 min".
std::string DescribeSeconds(double seconds);

}  // namespace spotlight
