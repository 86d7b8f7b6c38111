// The CPU's operations have run when they return (kernels/stream.hpp).
#include <chrono>
#include <vector>

#include "base/error.hpp"
#include "kernels/operations_kokkos.hpp"

namespace spotlight::kokkos {
namespace {

class FinishedCopy : public HostCopy {
 public:
  void Reserve(std::int64_t size) override { values_.reserve(static_cast<std::size_t>(size)); }
  void Start(const float* from, std::int64_t size) override { values_.assign(from, from + size); }
  bool Done() override { return true; }
  std::span<const float> Values() override { return values_; }

 private:
  std::vector<float> values_;
};

class WallTimer : public LaunchTimer {
 public:
  void Start() override { start_ = Clock::now(); }
  void Stop() override { seconds_ = std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool Done() override { return true; }
  double Seconds() override { return seconds_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
  double seconds_ = 0;
};

}  // namespace

std::unique_ptr<HostCopy> MakeHostCopy() { return std::make_unique<FinishedCopy>(); }

std::unique_ptr<LaunchTimer> MakeLaunchTimer() { return std::make_unique<WallTimer>(); }

std::unique_ptr<LaunchGraph> Record(const std::function<void()>&) {
  FailRequire("Operations::records", __FILE__, __LINE__, "the CPU runs what it is told at once");
}

void BeginPhase(const char*) {}

void EndPhase() {}

}  // namespace spotlight::kokkos
