#include "kernels/cuda/recorder_on_cpu.hpp"

#include <utility>
#include <vector>

#include "base/error.hpp"

namespace spotlight::on_cpu {
namespace {

class KeptLaunches : public LaunchGraph {
 public:
  void Replay() override {
    for (const std::function<void()>& launch : launches) launch();
  }
  std::vector<std::function<void()>> launches;
  std::vector<std::shared_ptr<void>> memory;
};

thread_local KeptLaunches* under_way = nullptr;

}  // namespace

bool IsRecording() { return under_way != nullptr; }

void Keep(std::function<void()> launch) { under_way->launches.push_back(std::move(launch)); }

void Keep(std::shared_ptr<void> memory) { under_way->memory.push_back(std::move(memory)); }

std::unique_ptr<LaunchGraph> Record(const std::function<void()>& launches) {
  SPOTLIGHT_REQUIRE(!IsRecording(), "a recording within another one");
  auto recording = std::make_unique<KeptLaunches>();
  struct Scope {
    explicit Scope(KeptLaunches& kept) { under_way = &kept; }
    ~Scope() { under_way = nullptr; }
  };
  const Scope scope(*recording);
  launches();
  return recording;
}

}  // namespace spotlight::on_cpu
