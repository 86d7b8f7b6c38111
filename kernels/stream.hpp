// What the host may do while kernels run. A back end of a device launches: its operations return before they have run,
// and run one after the other in the order of their calls. The CPU's have run when they return: here all of this is
// immediate.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace spotlight {

// Values on their way to the host.
class HostCopy {
 public:
  virtual ~HostCopy() = default;
  // Makes memory for copies of up to `size` values, which Start would have to wait for.
  virtual void Reserve(std::int64_t size) = 0;
  // Starts to copy `size` values of kernel memory, as what was launched before leaves them; what is launched later may
  // overwrite them. The values of an earlier copy are lost.
  virtual void Start(const float* from, std::int64_t size) = 0;
  // Whether Values would not wait.
  virtual bool Done() = 0;
  // The values, as soon as they are there. Good until the next Start.
  virtual std::span<const float> Values() = 0;
};
std::unique_ptr<HostCopy> MakeHostCopy();

// The time that launches take to run.
class LaunchTimer {
 public:
  virtual ~LaunchTimer() = default;
  // Around the launches.
  virtual void Start() = 0;
  virtual void Stop() = 0;
  // Whether they have run.
  virtual bool Done() = 0;
  // Waits until they have.
  virtual double Seconds() = 0;
};
std::unique_ptr<LaunchTimer> MakeLaunchTimer();

// Launches that can be run again at the price of one. With the arguments that they had: pointers and numbers, as
// indices of samples or sigmas, do not change; the contents of kernel memory are those of the moment.
class LaunchGraph {
 public:
  virtual ~LaunchGraph() = default;
  virtual void Replay() = 0;
};
// Calls `launches`: what it launches is recorded and does not run. It must neither make kernel memory nor copy from or
// to the host. Only where Operations::records; kernels/recordings.hpp is for everybody.
std::unique_ptr<LaunchGraph> Record(const std::function<void()>& launches);

// Phases of the work for the time lines of profilers (NVTX); they nest, thread by thread. `name` outlives the phase.
void BeginPhase(const char* name);
void EndPhase();

// The phase from here to the end of the scope.
class Phase {
 public:
  explicit Phase(const char* name) { BeginPhase(name); }
  ~Phase() { EndPhase(); }
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;
};

}  // namespace spotlight
