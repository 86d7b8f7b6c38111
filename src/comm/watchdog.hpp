// A bound on calls that cannot be given a deadline: starting, splitting and ending MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace spotlight {

// If it still exists after `limit`, prints what hung and ends the process at once with `exit_code`.
class Watchdog {
 public:
  Watchdog(const std::string& what, std::chrono::milliseconds limit, int exit_code);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace spotlight
