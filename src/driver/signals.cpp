#include "driver/signals.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>

namespace spotlight {
namespace {

std::atomic<bool> terminated{false}, interrupted{false}, asked{false};  // SIGTERM, SIGINT, SIGUSR1
std::atomic<bool> checkpoint_wanted{false};

void OnSignal(int number) {
  if (number == SIGUSR2) checkpoint_wanted = true;
  if (number == SIGUSR1) asked = true;
  if (number == SIGTERM) terminated = true;
  if (number == SIGINT && interrupted.exchange(true)) _exit(128 + SIGINT);
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
  if (terminated) return "SIGTERM";
  if (interrupted) return "SIGINT";
  return asked ? "SIGUSR1" : "";
}

bool TakeCheckpointRequest(const std::string& run_dir) {
  std::error_code ignored;
  const bool file = std::filesystem::remove(run_dir + "/checkpoint_now", ignored);
  return checkpoint_wanted.exchange(false) || file;
}

}  // namespace spotlight
