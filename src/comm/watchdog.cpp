#include "comm/watchdog.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"

namespace spotlight {

Watchdog::Watchdog(const std::string& what, std::chrono::milliseconds limit, int exit_code,
                   std::function<bool()> hopeless)
    : thread_([this, what, limit, exit_code, hopeless = std::move(hopeless)] {
        constexpr std::chrono::milliseconds kBetweenLooks{500};
        const auto start = std::chrono::steady_clock::now(), end = start + limit;
        std::unique_lock<std::mutex> lock(mutex_);
        auto now = start;
        while (now < end && !(hopeless && hopeless())) {
          const auto next = hopeless ? std::min(end, now + kBetweenLooks) : end;
          if (ended_.wait_until(lock, next, [this] { return done_; })) return;
          now = std::chrono::steady_clock::now();
        }
        fmt::print(stderr, "{}: {} did not end within {:.1f} s{}; giving up\n", ProcessName(), what,
                   std::chrono::duration<double>(now - start).count(), now < end ? " and cannot any more" : "");
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
