// Sequence parallelism at degrees 1, 2, 4 ... up to the number of ranks, one thread a rank, in one run:
//
//   scripts/mpirun.sh -np 4 bench_sp [REPEATS]      3 repeats of the passes by default
//
// Ranks beyond the degree sleep. One line for each degree P, read by scripts/bench/sp_table.py:
//   {"benchmark": "sp", "degree": P, "cores": n, "create_s": s, "exchange": {...}, "forward": {...},
//    "forward_backward": {...}, "bit_equal": b}, and for P > 1 "text_replicated": {...}
//
// create_s: making the group, the largest of its ranks.
// exchange: the all-to-all before attention, 1024 image + 64 text tokens, 24 heads x 128, fp32. {"min_s", "mib": what a
// rank receives, its own part included, "gb_per_s", "memcpy_share": the time of a memcpy of as many bytes, on all ranks
// at once, over min_s}.
// forward, forward_backward: the block of tests/bench/sp_pass.hpp. {"min_s": the least time of the slowest rank,
// "exchange_share": of that time, the mean part spent in exchanges, waiting included, "efficiency": t_1 / (P t_P),
// "work_efficiency": CPU time of one rank alone over the sum of all ranks' outside the exchanges, which more ranks than
// cores do not spoil}.
// bit_equal: velocity and adapter gradients have the bits of degree 1. If not, the exit code is 1.
// text_replicated: what it would cost if each rank had all text tokens, not its share: {"rows": linear work by the
// number of rows, "cpu": CPU time of rank 0 alone}, both over the same with shares.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <numeric>
#include <sstream>
#include <thread>

#include "comm/sp_group.hpp"
#include "comm/world.hpp"
#include "kernels/runtime.hpp"
#include "tests/bench/sp_pass.hpp"

namespace spotlight {
namespace {

constexpr Index kImageTokens = SpPass::kSide * SpPass::kSide, kTextTokens = SpPass::kTextTokens;
constexpr Index kTokens = kImageTokens + kTextTokens, kHeads = 24, kHeadWidth = 128;

double LeastWall(const std::vector<Seconds>& times) {
  return std::min_element(times.begin(), times.end(), [](auto& a, auto& b) { return a.wall < b.wall; })->wall;
}

// Members leave it together.
void Meet(SequenceGroup& group) {
  const std::vector<Index> one(static_cast<std::size_t>(group.size()), 1);
  const std::vector<std::byte> send(one.size());
  std::vector<std::byte> receive(one.size());
  group.AllToAll(send.data(), one, receive.data(), one);
}

std::string Exchange(SequenceGroup& group) {
  constexpr int kRepeats = 20;
  const int degree = group.size();
  const Index tokens = ShareOf(kTokens, group.index(), degree).size();
  const Index heads = ShareOf(kHeads, group.index(), degree).size();
  constexpr Index kTokenBytes = 3 * kHeadWidth * sizeof(float);  // of a head
  std::vector<Index> send_bytes, receive_bytes;
  for (int p = 0; p < degree; ++p) {
    send_bytes.push_back(tokens * ShareOf(kHeads, p, degree).size() * kTokenBytes);
    receive_bytes.push_back(ShareOf(kTokens, p, degree).size() * heads * kTokenBytes);
  }
  const auto floats = [](const std::vector<Index>& bytes) {
    return static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), Index{0})) / sizeof(float);
  };
  const std::vector<float> send(floats(send_bytes), 1);
  std::vector<float> receive(floats(receive_bytes));
  const double least =
      LeastWall(Measure(kRepeats, [&] { group.AllToAll(send.data(), send_bytes, receive.data(), receive_bytes); }));
  Meet(group);
  const std::size_t bytes = std::min(send.size(), receive.size()) * sizeof(float);
  const double copy = LeastWall(Measure(kRepeats, [&] { std::memcpy(receive.data(), send.data(), bytes); }));
  const double received = static_cast<double>(receive.size() * sizeof(float));
  return fmt::format(R"({{"min_s": {:.6f}, "mib": {:.2f}, "gb_per_s": {:.2f}, "memcpy_share": {:.3f}}})", least,
                     received / (1 << 20), received / least / 1e9, copy / least);
}

// One pass on one rank.
struct PassTime {
  double wall = 0, exchange = 0, work = 0;  // work: CPU time outside the exchanges
};

// A pass on all ranks of a group.
struct GroupTime {
  double slowest = 0, exchange_share = 0, work = 0;
};

template <typename Pass>
std::vector<PassTime> MeasurePass(SequenceGroup& group, int repeats, const Pass& pass) {
  std::vector<PassTime> times;
  for (int i = 0; i <= repeats; ++i) {
    TimedGroup timed(group);
    Meet(group);
    const Seconds start = Now();
    pass(timed);
    const Seconds time = Now() - start;
    if (i > 0) times.push_back({time.wall, timed.spent.wall, time.cpu - timed.spent.cpu});  // the first warms up
  }
  return times;
}

// Collective; ranks outside the group have no times. Of each figure the least of the repeats.
GroupTime Gather(World& world, int degree, int repeats, const std::vector<PassTime>& times) {
  std::string text;
  for (const PassTime& time : times) text += fmt::format("{} {} {} ", time.wall, time.exchange, time.work);
  std::vector<std::istringstream> ranks;
  for (const std::string& rank : world.AllGather(text)) ranks.emplace_back(rank);
  GroupTime least;
  for (int i = 0; i < repeats; ++i) {
    GroupTime sum;
    for (int p = 0; p < degree; ++p) {
      PassTime time;
      ranks[static_cast<std::size_t>(p)] >> time.wall >> time.exchange >> time.work;
      sum.slowest = std::max(sum.slowest, time.wall);
      sum.exchange_share += time.exchange / time.wall / degree;
      sum.work += time.work;
    }
    if (i == 0 || sum.slowest < least.slowest) {
      least.slowest = sum.slowest;
      least.exchange_share = sum.exchange_share;
    }
    least.work = i == 0 ? sum.work : std::min(least.work, sum.work);
  }
  return least;
}

std::string Fields(const GroupTime& time, const GroupTime& alone, int degree) {
  return fmt::format(
      R"({{"min_s": {:.4f}, "exchange_share": {:.4f}, "efficiency": {:.3f}, "work_efficiency": {:.3f}}})", time.slowest,
      time.exchange_share, alone.slowest / (degree * time.slowest), alone.work / time.work);
}

// Collective: the ranks' rows one after the other.
std::string Joined(World& world, const std::string& bytes) {
  std::string all;
  for (const std::string& part : world.AllGather(bytes)) all += part;
  return all;
}

// Collective: a rank's gradient is zero where others compute it.
std::string Added(World& world, const std::string& bytes) {
  std::vector<float> sum, part;
  for (const std::string& text : world.AllGather(bytes)) {
    if (text.empty()) continue;
    part.resize(text.size() / sizeof(float));
    sum.resize(part.size());
    std::memcpy(part.data(), text.data(), text.size());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return {reinterpret_cast<const char*>(sum.data()), sum.size() * sizeof(float)};
}

// Of one rank of `degree`.
std::string TextReplicated(SpPass& pass, int degree, int repeats) {
  const Index rows = SpPass::kSide / degree, shared = kTextTokens / degree;
  const double all = LeastCpu(Measure(repeats, [&] { pass.ForwardOf(rows, kTextTokens); }));
  const double share = LeastCpu(Measure(repeats, [&] { pass.ForwardOf(rows, shared); }));
  const double image = static_cast<double>(kImageTokens / degree);
  return fmt::format(R"({{"rows": {:.3f}, "cpu": {:.3f}}})",
                     (image + static_cast<double>(kTextTokens)) / (image + static_cast<double>(shared)), all / share);
}

// True if all degrees gave the same bits.
bool Bench(World& world, int repeats) {
  SpPass pass;
  GroupTime forward_alone, both_alone;
  std::string velocity_alone, gradient_alone;
  bool all_equal = true;
  for (int degree = 1; degree <= world.size(); degree *= 2) {
    std::string exchange, velocity, gradient;
    std::vector<PassTime> forward_times, both_times;
    double create = 0;
    if (world.rank() < degree) {
      std::vector<int> ranks(static_cast<std::size_t>(degree));
      std::iota(ranks.begin(), ranks.end(), 0);
      const Seconds start = Now();
      SpGroup group(world, ranks);
      create = (Now() - start).wall;
      exchange = Exchange(group);
      forward_times = MeasurePass(group, repeats, [&](SequenceGroup& timed) { pass.Forward(timed); });
      velocity = pass.Velocity();
      both_times = MeasurePass(group, repeats, [&](SequenceGroup& timed) { pass.ForwardBackward(timed); });
      gradient = pass.Gradient();
    }
    for (const std::string& text : world.AllGather(fmt::format("{}", create)))
      create = std::max(create, std::stod(text));
    const GroupTime forward = Gather(world, degree, repeats, forward_times);
    const GroupTime both = Gather(world, degree, repeats, both_times);
    velocity = Joined(world, velocity);
    gradient = Added(world, gradient);
    if (degree == 1) {
      forward_alone = forward;
      both_alone = both;
      velocity_alone = velocity;
      gradient_alone = gradient;
    }
    const bool equal = velocity == velocity_alone && gradient == gradient_alone;
    all_equal = all_equal && equal;
    std::string replicated;
    if (world.rank() == 0 && degree > 1) {
      replicated = fmt::format(R"(, "text_replicated": {})", TextReplicated(pass, degree, repeats));
    }
    world.AllGather("");  // the others sleep until rank 0 is done
    if (world.rank() != 0) continue;
    fmt::print(R"({{"benchmark": "sp", "degree": {}, "cores": {}, "create_s": {:.6f}, "exchange": {}, )"
               R"("forward": {}, "forward_backward": {}, "bit_equal": {}{}}})"
               "\n",
               degree, std::thread::hardware_concurrency(), create, exchange, Fields(forward, forward_alone, degree),
               Fields(both, both_alone, degree), equal, replicated);
    std::fflush(stdout);
  }
  return all_equal;
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  World world(&argc, &argv);
  StartKernels(1);
  int code = 0;
  try {
    code = Bench(world, CountArgument(argc, argv, 3)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_sp: %s\n", error.what());
    code = world.AgreeExit(1);
  }
  StopKernels();
  return world.Finish(code);
}
