// Who of a node's ranks is alive, by our own word: each rank's heartbeat in memory that the ranks of the node share.
//
// A stopped process (SIGSTOP, a frozen container) still holds its place in every MPI call, and MPI's own detector takes
// long computations for deaths. So each rank has a thread that beats, and watches the others of its node: whoever has
// not beaten for the detection time is killed (SIGKILL), which MPI does report. A rank whose thread beats but which
// does not come to a regroup that the others wait in is killed after the late limit: it hangs in its own work.
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

  static std::size_t BytesFor(int ranks);

 private:
  struct Slot;

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
  std::thread thread_;
};

}  // namespace spotlight
