// What the benchmarks share: timing of repeated work, and the JSON that scripts/bench/compare.py reads.
#pragma once

#include <fmt/format.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace spotlight {

// Wall time, and CPU time of all threads of the process, which a busy machine disturbs less.
struct Seconds {
  double wall = 0, cpu = 0;
  Seconds operator-(const Seconds& other) const { return {wall - other.wall, cpu - other.cpu}; }
};

// Both clocks, since arbitrary starts.
inline Seconds Now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  const double cpu = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  return {std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(), cpu};
}

inline double LeastCpu(const std::vector<Seconds>& times) {
  return std::min_element(times.begin(), times.end(), [](auto& a, auto& b) { return a.cpu < b.cpu; })->cpu;
}

// "median_s": s, "min_s": s, "cpu_s": the least. `times` is not empty.
inline std::string TimingFields(const std::vector<Seconds>& times) {
  std::vector<double> wall;
  for (const Seconds& time : times) wall.push_back(time.wall);
  std::sort(wall.begin(), wall.end());
  const std::size_t n = wall.size();
  return fmt::format(R"("median_s": {:.6f}, "min_s": {:.6f}, "cpu_s": {:.6f})", (wall[(n - 1) / 2] + wall[n / 2]) / 2,
                     wall.front(), LeastCpu(times));
}

// `repeats` calls of work() after one that warms up.
template <typename Work>
std::vector<Seconds> Measure(int repeats, const Work& work) {
  work();
  std::vector<Seconds> times;
  for (int i = 0; i < repeats; ++i) {
    const Seconds start = Now();
    work();
    times.push_back(Now() - start);
  }
  return times;
}

// The largest resident size of the process so far, in MiB.
inline double PeakMebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// OMP_NUM_THREADS, 1 without it.
inline int BenchThreads() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// The argument after the program's name as a positive number, else `fallback`.
inline int CountArgument(int argc, char** argv, int fallback) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 0;
  return count > 0 ? count : fallback;
}

}  // namespace spotlight
