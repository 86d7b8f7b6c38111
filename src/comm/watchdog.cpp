#include "comm/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/error.hpp"

namespace spotlight {

Watchdog::Watchdog(const std::string& what, std::chrono::milliseconds limit, int exit_code)
    : thread_([this, what, limit, exit_code] {
        std::unique_lock<std::mutex> lock(mutex_);
        if (ended_.wait_for(lock, limit, [this] { return done_; })) return;
        fmt::print(stderr, "{}: {} did not end within {:.1f} s; giving up\n", ProcessName(), what,
                   static_cast<double>(limit.count()) / 1000);
        std::fflush(nullptr);
        _exit(exit_code);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace spotlight
