// Links into spotlight_chaos, which is spotlight otherwise: what happens at the places of base/failpoint.hpp.
//
//   SPOTLIGHT_FAILPOINT      PLACE:ACT[:KEY=VALUE...][;...]   what to do; see Rule
//   SPOTLIGHT_FAILPOINT_DIR  a folder: counts what has happened, over all processes (key `times`)
//   SPOTLIGHT_FAILPOINT_LOG  a file: a line "NANOSECONDS PROCESS PLACE" for each place passed; CLOCK_MONOTONIC
//
// A text that cannot be read ends the process with a message: a rule that silently does nothing would prove nothing.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/failpoint.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;

// Place: a name, or its beginning with '*'. Acts: kill, stop (signals), abort, exit (code 3), throw (an InternalError),
// fail (a FileError), nomem (std::bad_alloc), sleep (ms), spin (ms, at work); at a DamagePoint: flip (a byte of the
// data) and nan (all of it). It happens at the nth time that this process comes by (0: any time), with the chance
// given, in the processes of these ranks of their MPI job (none: all), and `times` times in the whole run (0: without
// end).
struct Rule {
  std::string place, act;
  double chance = 1;
  int nth = 0, times = 0, ms = 100;
  unsigned seed = 0;
  std::set<int> ranks;
  int passed = 0;
};

[[noreturn]] void Refuse(const std::string& text) {
  std::fprintf(stderr, "SPOTLIGHT_FAILPOINT: '%s' is no PLACE:ACT[:KEY=VALUE...] (tests/chaos/failpoints.cpp)\n",
               text.c_str());
  std::_Exit(kExitUsage);
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Rule ReadRule(const std::string& text) {
  const std::vector<std::string> parts = Split(text, ':');
  const std::set<std::string> acts = {"kill",  "stop",  "abort", "exit", "throw", "fail",
                                      "nomem", "sleep", "spin",  "flip", "nan"};
  if (parts.size() < 2 || !acts.contains(parts[1])) Refuse(text);
  Rule rule{.place = parts[0], .act = parts[1], .ranks = {}};
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    if (equals == std::string::npos) Refuse(text);
    const std::string key = parts[i].substr(0, equals), value = parts[i].substr(equals + 1);
    try {
      if (key == "chance") {
        rule.chance = std::stod(value);
      } else if (key == "nth") {
        rule.nth = std::stoi(value);
      } else if (key == "times") {
        rule.times = std::stoi(value);
      } else if (key == "ms") {
        rule.ms = std::stoi(value);
      } else if (key == "seed") {
        rule.seed = static_cast<unsigned>(std::stoul(value));
      } else if (key == "ranks") {
        for (const std::string& rank : Split(value, '+')) rule.ranks.insert(std::stoi(rank));
      } else {
        Refuse(text);
      }
    } catch (const std::logic_error&) {
      Refuse(text);
    }
  }
  return rule;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int OwnRank() {
  const std::string rank = Environment("OMPI_COMM_WORLD_RANK");
  return rank.empty() ? 0 : std::stoi(rank);
}

class Failpoints {
 public:
  Failpoints() : rank_(OwnRank()), folder_(Environment("SPOTLIGHT_FAILPOINT_DIR")) {
    for (const std::string& text : Split(Environment("SPOTLIGHT_FAILPOINT"), ';')) {
      rules_.push_back(ReadRule(text));
      if (rules_.back().times > 0 && folder_.empty()) Refuse(text + ": times needs SPOTLIGHT_FAILPOINT_DIR");
    }
    if (const std::string path = Environment("SPOTLIGHT_FAILPOINT_LOG"); !path.empty()) {
      log_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
      if (log_ < 0) Refuse(path + " (the log cannot be opened)");
    }
    const unsigned seed = rules_.empty() ? 0 : rules_[0].seed;
    generator_.seed(seed * 7919 + static_cast<unsigned>(getpid()));
  }

  bool active() const { return log_ >= 0 || !rules_.empty(); }

  void Pass(std::string_view place) {
    if (log_ >= 0) Write(place);
    for (Rule& rule : rules_) {
      if (Applies(rule, place)) Act(rule);
    }
  }

  void Damage(std::string_view place, std::span<std::byte> data) {
    for (Rule& rule : rules_) {
      if (data.empty() || !Applies(rule, place)) continue;
      if (rule.act == "flip") data[data.size() / 3] ^= std::byte{0x55};
      if (rule.act == "nan") std::fill(data.begin(), data.end(), std::byte{0xff});
    }
  }

 private:
  void Write(std::string_view place) const {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    char line[128];
    const int length = std::snprintf(line, sizeof(line), "%lld %d %.*s\n",
                                     static_cast<long long>(std::chrono::nanoseconds(now).count()), getpid(),
                                     static_cast<int>(place.size()), place.data());
    if (write(log_, line, static_cast<std::size_t>(length)) != length) Refuse("the log cannot be written");
  }

  bool Applies(Rule& rule, std::string_view place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string_view wanted = rule.place;
    const bool here = wanted.ends_with('*') ? place.starts_with(wanted.substr(0, wanted.size() - 1)) : place == wanted;
    if (!here || (!rule.ranks.empty() && !rule.ranks.contains(rank_))) return false;
    ++rule.passed;
    if (rule.nth > 0 && rule.passed != rule.nth) return false;
    if (std::uniform_real_distribution<double>()(generator_) >= rule.chance) return false;
    return rule.times == 0 || Count(rule);
  }

  // Whether it has not happened `times` times yet.
  bool Count(const Rule& rule) const {
    for (int i = 0; i < rule.times; ++i) {
      const std::string name = folder_ + "/" + rule.place + "." + rule.act + "." + std::to_string(i);
      const int file = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (file < 0) continue;
      close(file);
      return true;
    }
    return false;
  }

  static void Act(const Rule& rule) {
    if (rule.act == "kill") std::raise(SIGKILL);
    if (rule.act == "stop") std::raise(SIGSTOP);
    if (rule.act == "abort") std::abort();
    if (rule.act == "exit") std::exit(3);
    if (rule.act == "throw") throw InternalError("thrown by a failpoint, " + rule.place);
    if (rule.act == "fail") throw FileError("a failpoint's Input/output error, " + rule.place);
    if (rule.act == "nomem") throw std::bad_alloc();
    if (rule.act == "sleep") std::this_thread::sleep_for(milliseconds(rule.ms));
    if (rule.act == "spin") {
      const auto end = std::chrono::steady_clock::now() + milliseconds(rule.ms);
      while (std::chrono::steady_clock::now() < end) {
      }
    }
  }

  int rank_;
  std::string folder_;
  std::vector<Rule> rules_;
  int log_ = -1;
  std::mutex mutex_;  // of what follows, and Rule::passed: places are passed by several threads
  std::mt19937 generator_;
};

// The log's descriptor stays open to the end.
Failpoints& All() {
  static Failpoints failpoints;
  return failpoints;
}

// Before main.
const bool hooked = [] {
  if (!All().active()) return true;
  failpoint_hook = [](const char* place) { All().Pass(place); };
  damage_hook = [](const char* place, std::span<std::byte> data) { All().Damage(place, data); };
  return true;
}();

}  // namespace
}  // namespace spotlight
