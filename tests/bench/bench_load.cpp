// Loads the weights of a model folder; the counterpart of scripts/bench/safetensors_load.py.
//
//   bench_load FOLDER f32|bf16 [REPEATS]
//
// One thread. Every tensor ends in memory of its own, each load in a process of its own; the first is not counted.
// Prints one JSON line for compare.py; peak_mib is the largest resident size while loading, less that before.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "io/weight_files.hpp"
#include "timing.hpp"

namespace spotlight {
namespace {

template <typename T>
void LoadAll(const std::string& folder) {
  const WeightFiles files(folder);
  std::vector<std::unique_ptr<std::byte[]>> weights;  // bytes: new Bfloat16s would be zeroed first
  for (const std::string& name : files.Names()) {
    const auto count = static_cast<std::size_t>(NumElements(files.ShapeOf(name)));
    weights.push_back(std::make_unique_for_overwrite<std::byte[]>(count * sizeof(T)));
    files.Read(name, std::span(reinterpret_cast<T*>(weights.back().get()), count));
  }
}

struct Load {
  Seconds time;
  double peak_mib = 0;
};

// One load in a child process.
Load LoadOnce(const std::string& folder, bool to_bfloat16) {
  int ends[2];
  Load result;
  if (pipe(ends) != 0) return result;
  if (const pid_t child = fork(); child == 0) {
    const double before = PeakMebibytes();
    const Seconds start = Now();
    to_bfloat16 ? LoadAll<Bfloat16>(folder) : LoadAll<float>(folder);
    result = {Now() - start, PeakMebibytes() - before};
    _exit(write(ends[1], &result, sizeof(result)) == sizeof(result) ? 0 : 1);
  }
  close(ends[1]);
  const bool whole = read(ends[0], &result, sizeof(result)) == sizeof(result);
  close(ends[0]);
  wait(nullptr);
  if (!whole) std::exit(1);  // the child has said why
  return result;
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  if (argc < 3) {
    fmt::print(stderr, "bench_load FOLDER f32|bf16 [REPEATS]\n");
    return 2;
  }
  const std::string folder = argv[1], to = argv[2];
  std::vector<Seconds> times;
  double peak_mib = 0;
  LoadOnce(folder, to == "bf16");
  for (int i = CountArgument(argc - 2, argv + 2, 3); i > 0; --i) {
    const Load load = LoadOnce(folder, to == "bf16");
    times.push_back(load.time);
    peak_mib = load.peak_mib;
  }
  fmt::print(R"({{"benchmark": "load to {}", "threads": 1, {}, "peak_mib": {:.1f}}})", to, TimingFields(times),
             peak_mib);
  fmt::print("\n");
  return 0;
}
