#include "driver/signals.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace spotlight {
namespace {

// In a process of its own, because there is no way back.
void TakeNotice() {
  InstallSignalHandlers();
  if (!StopSignal().empty()) std::_Exit(1);
  std::raise(SIGUSR1);
  if (StopSignal() != "SIGUSR1") std::_Exit(2);
  std::raise(SIGTERM);
  std::raise(SIGUSR1);  // scripts/mpirun.sh repeats it
  std::_Exit(StopSignal() == "SIGTERM" ? 0 : 3);
}

TEST(Signals, ANoticeStays) { EXPECT_EXIT(TakeNotice(), ::testing::ExitedWithCode(0), ""); }

}  // namespace
}  // namespace spotlight
