// What the ranks do in the tests of SpGroup, see ranks.cpp.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/host_peer_memory.hpp"
#include "comm/sp_group.hpp"
#include "tests/comm/ranks.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<int> AllRanks(const World& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Byte i of what `from` sends to `to`: places that are not 251 apart differ within a message.
unsigned char Element(int from, int to, Index i) { return static_cast<unsigned char>(64 * from + 8 * to + i % 251); }

// Everybody sends size(from, to) bytes; every byte received must be the one sent, and nothing else be written.
template <class Size>
void CheckAllToAll(SpGroup& group, const Size& size) {
  const int own = group.index();
  std::vector<Index> send_bytes, receive_bytes;
  std::vector<unsigned char> send, expected;
  for (int p = 0; p < group.size(); ++p) {
    send_bytes.push_back(size(own, p));
    receive_bytes.push_back(size(p, own));
    for (Index i = 0; i < send_bytes.back(); ++i) send.push_back(Element(own, p, i));
    for (Index i = 0; i < receive_bytes.back(); ++i) expected.push_back(Element(p, own, i));
  }
  expected.push_back(7);
  std::vector<unsigned char> received(expected.size(), 7);
  const bool by_windows = group.AllToAllOnDevice(send.data(), send_bytes, received.data(), receive_bytes);
  EXPECT(by_windows == uses_windows);
  if (!by_windows) group.AllToAll(send.data(), send_bytes, received.data(), receive_bytes);
  EXPECT(received == expected);
}

int SpExchange(World& world) {
  SpGroup group(world, AllRanks(world));
  EXPECT(group.size() == world.size() && group.index() == world.rank());
  CheckAllToAll(group, [](int from, int to) { return Index{1000} * from + Index{17} * to + 3; });
  CheckAllToAll(group, [](int, int) { return Index{0}; });
  CheckAllToAll(group, [](int from, int to) { return (from + to) % 2 == 0 ? Index{0} : Index{1200000} + from; });
  CheckAllToAll(group, [](int from, int) { return from == 0 ? Index{5} : Index{0}; });
  // More than one message of 64 MiB between two ranks.
  CheckAllToAll(group, [](int from, int to) { return from == 0 && to == 1 ? (Index{1} << 26) + 5 : Index{1}; });
  for (Index i = 0; i < 200; ++i) CheckAllToAll(group, [i](int from, int to) { return (i * (from + 1) + to) % 50; });
  return kExitFinished;
}

// Two groups at once, in an order of their own, made again and again.
int SpRegroup(World& world) {
  const int rank = world.rank();
  for (int i = 0; i < 30; ++i) {
    const std::vector<int> ranks =
        i % 2 == 0 ? std::vector<int>{rank < 2 ? 1 : 3, rank < 2 ? 0 : 2} : std::vector<int>{rank % 2, rank % 2 + 2};
    SpGroup group(world, ranks);
    EXPECT(ranks[static_cast<std::size_t>(group.index())] == rank);
    CheckAllToAll(group, [&](int from, int to) {
      return Index{100} * ranks[static_cast<std::size_t>(from)] + ranks[static_cast<std::size_t>(to)];
    });
  }
  if (rank == 3) return kExitFinished;
  SpGroup group(world, std::vector<int>{0, 1, 2});
  CheckAllToAll(group, [](int from, int to) { return Index{from} + to; });
  return kExitFinished;
}

// The last rank has no window: its groups go by MPI, the others' do not.
int SpHalfWindows(World& world) {
  const bool last = world.rank() == world.size() - 1;
  EXPECT(world.UseWindows(last ? nullptr : std::make_unique<HostPeerMemory>(), 1000) == !last);
  SpGroup all(world, AllRanks(world));
  CheckAllToAll(all, [](int, int) { return Index{5000}; });
  if (last) return kExitFinished;
  uses_windows = true;
  std::vector<int> ranks = AllRanks(world);
  ranks.pop_back();
  SpGroup others(world, ranks);
  CheckAllToAll(others, [](int, int) { return Index{5000}; });
  return kExitFinished;
}

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int SpBroadcast(World& world) {
  SpGroup group(world, AllRanks(world));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, (std::size_t{1} << 26) + 3}) {
    const auto pattern = [&](std::size_t i) { return static_cast<std::byte>((i + size) % 251); };
    Bytes expected(size);
    for (std::size_t i = 0; i < size; ++i) expected[i] = pattern(i);
    Bytes bytes = group.index() == 0 ? expected : Bytes(10);
    group.Broadcast(bytes);
    EXPECT(bytes == expected);
  }
  // Who waits for the leader leaves the core to others.
  const double start = CpuSeconds();
  if (group.index() == 0) std::this_thread::sleep_for(seconds(1));
  Bytes bytes(1);
  group.Broadcast(bytes);
  EXPECT(CpuSeconds() - start < 0.2);
  return kExitFinished;
}

// The leader does not call within the idle limit.
int SpIdleLimit(World& world) {
  SpGroup group(world, AllRanks(world));
  const Clock::time_point start = Clock::now();
  if (group.index() == 0) std::this_thread::sleep_for(milliseconds(1000));
  Bytes bytes(1);
  try {
    group.Broadcast(bytes, milliseconds(200));
  } catch (const PeerLost&) {
    EXPECT(group.index() == 0 || Clock::now() - start < milliseconds(800));
    return kExitStopped;
  }
  return kExitFinished;
}

// The thrower's exit code is the worse one; the others would return kExitInternal if they noticed too late.
int SpThrows(World& world) {
  const Clock::time_point start = Clock::now();
  try {
    SpGroup group(world, AllRanks(world));
    if (group.index() == 1) throw FileError("only this member sees it");
    CheckAllToAll(group, [](int, int) { return Index{400000}; });
  } catch (const PeerLost&) {
    EXPECT(Clock::now() - start < seconds(5));
    return kExitStopped;
  }
  return kExitFinished;
}

// Rank 2 dies while the others exchange.
int SpKilled(World& world) {
  const Clock::time_point start = Clock::now();
  try {
    SpGroup group(world, AllRanks(world));
    if (world.rank() == 2) std::raise(SIGKILL);
    CheckAllToAll(group, [](int, int) { return Index{400000}; });
  } catch (const PeerLost&) {
    EXPECT(Clock::now() - start < seconds(5));
    throw WorldEnding(kExitStopped);
  }
  return kExitFinished;
}

// Rank 2 is late by more than the limit of 1 s.
int SpSilent(World& world) {
  SpGroup group(world, AllRanks(world));
  const Clock::time_point start = Clock::now();
  if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(2500));
  try {
    CheckAllToAll(group, [](int, int) { return Index{1}; });
  } catch (const PeerLost&) {
    EXPECT(world.rank() == 2 || Clock::now() - start < milliseconds(2400));
    throw WorldEnding(kExitStopped);
  }
  return kExitFinished;
}

// A large message belongs to MPI until its receiver speaks again; everybody leaves unharmed then.
int SpLargeSilent(World& world) {
  SpGroup group(world, AllRanks(world));
  if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(2500));
  try {
    CheckAllToAll(group, [](int, int) { return Index{400000}; });
  } catch (const PeerLost&) {
    return kExitStopped;
  }
  return kExitFinished;
}

}  // namespace

std::map<std::string, Scenario> SpScenarios() {
  return {
      {"sp_exchange", SpExchange},   {"sp_regroup", SpRegroup},      {"sp_half_windows", SpHalfWindows},
      {"sp_broadcast", SpBroadcast}, {"sp_idle_limit", SpIdleLimit}, {"sp_throws", SpThrows},
      {"sp_killed", SpKilled},       {"sp_silent", SpSilent},        {"sp_large_silent", SpLargeSilent},
  };
}

}  // namespace spotlight
