#include "driver/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>

namespace spotlight {
namespace {

std::atomic<int> stop_signal{0};
std::atomic<bool> checkpoint_wanted{false};

void OnSignal(int number) {
  if (number == SIGUSR2) {
    checkpoint_wanted = true;
  } else {
    if (number == SIGINT && stop_signal == SIGINT) _exit(128 + SIGINT);
    stop_signal = number;
  }
}

}  // namespace

void InstallSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaction(number, &action, nullptr);
  signal(SIGXFSZ, SIG_IGN);  // a file beyond the batch system's limit is an error of write()
}

std::string StopSignal() {
  switch (stop_signal.load()) {
    case 0:
      return "";
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      return "SIGUSR1";
  }
}

bool TakeCheckpointRequest(const std::string& run_dir) {
  std::error_code ignored;
  const bool file = std::filesystem::remove(run_dir + "/checkpoint_now", ignored);
  return checkpoint_wanted.exchange(false) || file;
}

}  // namespace spotlight
