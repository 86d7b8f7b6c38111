#include "schedule/trace_player.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kVictimStream = 0x76696374696dULL;

struct NodeEvent {
  double seconds;  // of the run
  int place;
  bool comes;
};

// Which of `places` nodes comes or goes when.
class Places {
 public:
  Places(const SpotTrace& trace, const TraceRules& rules, int places)
      : trace_(trace), rules_(rules), taken_(static_cast<std::size_t>(places), false) {
    for (const TraceEvent& event : trace.events) {
      if (event.node < 0) {
        Scale(event);
      } else if (event.change > 0) {
        if (const int free = NthWhere(false, 0); free >= 0) place_of_[event.node] = Change(event, free, true);
      } else if (const auto node = place_of_.find(event.node); node != place_of_.end()) {
        Change(event, node->second, false);
        place_of_.erase(node);
      }
    }
  }

  std::vector<NodeEvent> Take() { return std::move(events_); }

 private:
  int Change(const TraceEvent& event, int place, bool comes) {
    taken_[static_cast<std::size_t>(place)] = comes;
    count_ += comes ? 1 : -1;
    events_.push_back({event.seconds / rules_.time_scale, place, comes});
    return place;
  }

  // The number of the n-th place that is taken or free; -1: there are not so many.
  int NthWhere(bool taken, std::uint64_t n) const {
    for (std::size_t place = 0; place < taken_.size(); ++place) {
      if (taken_[place] == taken && n-- == 0) return static_cast<int>(place);
    }
    return -1;
  }

  void Scale(const TraceEvent& event) {
    trace_count_ += event.change;
    const int target = static_cast<int>(
        std::lround(static_cast<double>(trace_count_) * static_cast<double>(taken_.size()) / trace_.most_nodes));
    while (count_ < target) Change(event, NthWhere(false, 0), true);
    const std::uint64_t key = StreamKey({kVictimStream, rules_.seed});
    while (count_ > target) {
      Change(event, NthWhere(true, UniformInt(key, drawn_++, static_cast<std::uint64_t>(count_))), false);
    }
  }

  const SpotTrace& trace_;
  const TraceRules& rules_;
  std::vector<bool> taken_;
  int count_ = 0;  // taken
  int trace_count_ = 0;
  std::uint64_t drawn_ = 0;
  std::map<int, int> place_of_;  // by node of the trace
  std::vector<NodeEvent> events_;
};

}  // namespace

TracePlayer::TracePlayer(const SpotTrace& trace, const TraceRules& rules) {
  SPOTLIGHT_REQUIRE(rules.ranks >= 1 && rules.ranks_per_node >= 1 && rules.time_scale > 0 &&
                        rules.notice_seconds >= 0 && rules.start_seconds >= 0,
                    std::to_string(rules.ranks) + " ranks, " + std::to_string(rules.ranks_per_node) +
                        " a node, time x " + std::to_string(rules.time_scale) + ", notice " +
                        std::to_string(rules.notice_seconds) + " s, from " + std::to_string(rules.start_seconds) +
                        " s on");
  SPOTLIGHT_REQUIRE(trace.most_nodes >= 1, "a trace without nodes");
  const int places = (rules.ranks + rules.ranks_per_node - 1) / rules.ranks_per_node;
  const auto add = [&](double seconds, SpotAction::Kind kind, int place) {
    const int first = place * rules.ranks_per_node, end = std::min(first + rules.ranks_per_node, rules.ranks);
    for (int rank = first; rank < end; ++rank) actions_.push_back({seconds, kind, rank});
  };

  // All are there before the first instant; only what it changes in the end is an action.
  std::vector<bool> there(static_cast<std::size_t>(places), false);
  std::vector<double> since(static_cast<std::size_t>(places), rules.start_seconds);
  const std::vector<NodeEvent> events = Places(trace, rules, places).Take();
  auto event = events.begin();
  for (; event != events.end() && event->seconds <= rules.start_seconds; ++event)
    there[static_cast<std::size_t>(event->place)] = event->comes;
  for (int place = 0; place < places; ++place) {
    if (!there[static_cast<std::size_t>(place)]) add(rules.start_seconds, SpotAction::Kind::kKill, place);
  }
  for (; event != events.end(); ++event) {
    double& last = since[static_cast<std::size_t>(event->place)];
    if (event->comes) {
      add(event->seconds, SpotAction::Kind::kReturn, event->place);
    } else {
      if (rules.notice_seconds > 0) {
        add(std::max(last, event->seconds - rules.notice_seconds), SpotAction::Kind::kNotice, event->place);
      }
      add(event->seconds, SpotAction::Kind::kKill, event->place);
    }
    last = event->seconds;
  }
  std::stable_sort(actions_.begin(), actions_.end(),
                   [](const SpotAction& a, const SpotAction& b) { return a.seconds < b.seconds; });
}

std::vector<SpotAction> TracePlayer::Due(double now) {
  std::vector<SpotAction> due;
  for (; next_ < actions_.size() && actions_[next_].seconds <= now; ++next_) {
    const SpotAction& action = actions_[next_];
    const auto comes = std::find_if(due.begin(), due.end(), [&](const SpotAction& other) {
      return other.rank == action.rank && other.kind == SpotAction::Kind::kReturn;
    });
    if (action.kind != SpotAction::Kind::kKill || comes == due.end()) {
      due.push_back(action);
    } else {
      due.erase(std::remove_if(comes, due.end(), [&](const SpotAction& other) { return other.rank == action.rank; }),
                due.end());
    }
  }
  return due;
}

}  // namespace spotlight
