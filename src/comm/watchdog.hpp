// A bound on calls that cannot be given a deadline: starting, splitting and ending MPI.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace spotlight {

// If it still exists after `limit`, or once `hopeless` says true (asked now and then, from another thread), prints what
// hung and ends the process at once with `exit_code`.
class Watchdog {
 public:
  Watchdog(const std::string& what, std::chrono::milliseconds limit, int exit_code,
           std::function<bool()> hopeless = {});
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
