// Sequence parallelism at degrees 1, 2, 4 ... up to the number of ranks, in one run:
//
//   scripts/mpirun.sh -np 4 bench_sp [REPEATS]      20 repeats by default
//
// exchange: the all-to-all before attention of one block of Qwen-Image at 512 px, batch 1: 1024 image + 64 text tokens,
// 24 heads x 128, fp32. Each rank has its share of the tokens (queries, keys and values of all heads) and gets its
// share of the heads of all tokens: 3 x tokens x 3072 / degree floats per rank, its own part included. Ranks beyond the
// degree sleep. gb_per_s: the bytes that one rank receives per second. memcpy_share: the time of a memcpy of the same
// bytes, on all ranks of the group at once, over the exchange's. create_s: making the group, the largest of its ranks.
// Prints one line per degree: {"benchmark": "sp_exchange", "degree": p, "cores": n, "create_s": s, "mib": m,
// "exchange": {"median_s", "min_s", "cpu_s"}, "gb_per_s": g, "memcpy_share": f}.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/sequence_group.hpp"
#include "comm/sp_group.hpp"
#include "comm/world.hpp"
#include "tests/bench/timing.hpp"

namespace spotlight {
namespace {

constexpr Index kTokens = 1024 + 64, kHeads = 24, kHeadWidth = 128;

double LeastWall(const std::vector<Seconds>& times) {
  return std::min_element(times.begin(), times.end(), [](auto& a, auto& b) { return a.wall < b.wall; })->wall;
}

// Members leave it together.
void Meet(SpGroup& group) {
  const std::vector<Index> counts(static_cast<std::size_t>(group.size()), 1);
  const std::vector<float> send(counts.size());
  std::vector<float> receive(counts.size());
  group.AllToAll(send.data(), counts, receive.data(), counts);
}

std::string Exchange(SpGroup& group, int repeats) {
  const int degree = group.size();
  const Index tokens = ShareOf(kTokens, group.index(), degree).size();
  const Index heads = ShareOf(kHeads, group.index(), degree).size();
  std::vector<Index> send_counts, receive_counts;
  for (int p = 0; p < degree; ++p) {
    send_counts.push_back(3 * tokens * ShareOf(kHeads, p, degree).size() * kHeadWidth);
    receive_counts.push_back(3 * ShareOf(kTokens, p, degree).size() * heads * kHeadWidth);
  }
  const auto sum = [](const std::vector<Index>& counts) {
    return static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), Index{0}));
  };
  const std::vector<float> send(sum(send_counts), 1);
  std::vector<float> receive(sum(receive_counts));
  const std::vector<Seconds> times =
      Measure(repeats, [&] { group.AllToAll(send.data(), send_counts, receive.data(), receive_counts); });
  Meet(group);
  const std::size_t bytes = std::min(send.size(), receive.size()) * sizeof(float);
  const std::vector<Seconds> copies = Measure(repeats, [&] { std::memcpy(receive.data(), send.data(), bytes); });
  const double received = static_cast<double>(receive.size() * sizeof(float));
  return fmt::format(R"("mib": {:.2f}, "exchange": {{{}}}, "gb_per_s": {:.2f}, "memcpy_share": {:.3f})",
                     received / (1 << 20), TimingFields(times), received / LeastWall(times) / 1e9,
                     LeastWall(copies) / LeastWall(times));
}

void Bench(World& world, int repeats) {
  for (int degree = 1; degree <= world.size(); degree *= 2) {
    std::string line;
    double create = 0;
    if (world.rank() < degree) {
      std::vector<int> ranks(static_cast<std::size_t>(degree));
      std::iota(ranks.begin(), ranks.end(), 0);
      const Seconds start = Now();
      SpGroup group(world, ranks);
      create = (Now() - start).wall;
      line = Exchange(group, repeats);
    }
    for (const std::string& text : world.AllGather(fmt::format("{}", create)))
      create = std::max(create, std::stod(text));
    if (world.rank() == 0) {
      fmt::print(R"({{"benchmark": "sp_exchange", "degree": {}, "cores": {}, "create_s": {:.6f}, {}}})"
                 "\n",
                 degree, std::thread::hardware_concurrency(), create, line);
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  World world(&argc, &argv);
  try {
    Bench(world, CountArgument(argc, argv, 20));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sp: %s\n", error.what());
    return world.Finish(world.AgreeExit(1));
  }
  return world.Finish(0);
}
