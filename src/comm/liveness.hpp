// Who of a node's ranks is alive, by our own word: each rank's heartbeat in memory that the ranks of the node share.
//
// A stopped process (SIGSTOP, a frozen container) still holds its place in every MPI call, and MPI's own detector takes
// long computations for deaths. So each rank has a thread that beats, and watches the others of its node: whoever has
// not beaten for the detection time is killed (SIGKILL), which MPI does report. A rank whose thread beats but which
// does not come to a regroup that the others wait in hangs in its own work: it is killed after the late limit. Steps of
// a large model, loading weights and judging may take longer than any limit that is set beforehand; so each rank tells
// its longest way between two borders so far, and is waited for three times as long. One that has not ended a batch yet
// is waited for `kUnmeasured`.
//
// The watcher's own pause (the whole machine was frozen, or is overloaded) is not held against others: who was late
// itself looks again later. Memory: anonymous, so nothing is left behind. Times: CLOCK_MONOTONIC.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

#include "comm/world.hpp"

namespace spotlight {

class Liveness {
 public:
  // Starts to beat and watch. Needs World::node_table; without it (or with one rank on the node) does nothing.
  Liveness(const World& world, std::chrono::milliseconds detection_time, std::chrono::milliseconds late_limit);
  ~Liveness();
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // This rank waits in a regroup, or does so no longer.
  void SetWaiting(bool waiting);
  // This rank is between two steps of a batch, or between two batches.
  void AtBorder(bool in_batch);

  // How long this rank, or any of its node, is waited for.
  std::chrono::milliseconds OwnPatience() const;
  std::chrono::milliseconds LongestPatience() const;

  static std::size_t BytesFor(int ranks);
  static constexpr std::chrono::milliseconds kUnmeasured = std::chrono::minutes(10);

 private:
  struct Slot;

  std::int64_t PatienceWith(const Slot& slot) const;  // ns

  void Watch();
  void LookAtOthers(std::int64_t now);
  void Kill(Slot& slot, std::int64_t silent) const;

  std::chrono::milliseconds detection_time_, late_limit_;
  Slot* slots_ = nullptr;
  int count_ = 0;
  int own_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::int64_t last_border_ = 0;  // ns; 0: there was none since the last regroup
  bool in_batch_ = false;
  std::thread thread_;
};

}  // namespace spotlight
