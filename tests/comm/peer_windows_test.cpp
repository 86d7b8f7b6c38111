// The exchange by windows between processes, over memory of the host: sizes, regroups, and deaths (SIGKILL) at any of
// its operations. What is received has the bits of what was sent, or PeerLost is thrown because a member is dead.
#include "comm/peer_windows.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "comm/host_peer_memory.hpp"
#include "comm/peer_lost.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kMost = 6;  // processes

// In memory of all processes.
struct Node {
  std::atomic<int> dead[kMost];
  std::atomic<int> arrived[kMost];  // barriers
  alignas(64) std::byte table[1 << 16];
};

Node* MakeNode() {
  void* const memory = mmap(nullptr, sizeof(Node), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Node*>(memory);
}

// Kills its process before operation number `fatal`.
class DyingMemory : public HostPeerMemory {
 public:
  explicit DyingMemory(int fatal) : left_(fatal) {}
  void Push(int peer, std::size_t offset, const void* from, std::size_t bytes) override {
    Count();
    HostPeerMemory::Push(peer, offset, from, bytes);
  }
  void Take(std::size_t offset, void* to, std::size_t bytes) override {
    Count();
    HostPeerMemory::Take(offset, to, bytes);
  }
  void Raise(Flag& flag, std::uint64_t value) override {
    Count();
    HostPeerMemory::Raise(flag, value);
  }
  void Await(const Flag& flag, std::uint64_t value) override {
    Count();
    HostPeerMemory::Await(flag, value);
  }
  bool Done() override {
    if (left_ == 1) Count();  // also in the middle of a wait
    return HostPeerMemory::Done();
  }

 private:
  void Count() {
    if (left_ > 0 && --left_ == 0) std::raise(SIGKILL);
  }
  int left_;
};

// Runs body(process) in `count` processes, each ends with its result; marks those that are killed as dead. The number
// of processes that ended with another code than 0.
template <typename Body>
int Fork(Node& node, int count, const Body& body) {
  std::vector<pid_t> processes;
  for (int i = 0; i < count; ++i) {
    const pid_t process = fork();
    if (process == 0) {
      int code = 1;
      try {
        code = body(i);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "process %d: %s\n", i, error.what());
      }
      std::fflush(stderr);
      _exit(code);
    }
    processes.push_back(process);
  }
  int failures = 0;
  for (int left = count; left > 0; --left) {
    int status = 0;
    const pid_t process = wait(&status);
    const auto place = std::find(processes.begin(), processes.end(), process) - processes.begin();
    node.dead[place] = 1;
    failures += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : WEXITSTATUS(status) != 0;
  }
  return failures;
}

std::byte Content(std::uint64_t exchange, int from, int to, std::size_t i) {
  return static_cast<std::byte>((exchange * 7919 + static_cast<std::uint64_t>(from) * 31 +
                                 static_cast<std::uint64_t>(to) * 17 + i * (i % 13 + 1)) %
                                251);
}

// One exchange of `members`; bytes(from, to), numbers of processes. Throws PeerLost.
template <typename Count>
bool ExchangeIsRight(PeerWindows& windows, const std::vector<int>& members, int own, std::uint64_t exchange,
                     const Count& bytes, milliseconds limit, const std::function<void()>& look) {
  std::vector<Index> send_bytes, receive_bytes;
  std::vector<std::byte> send, expected;
  for (const int member : members) {
    send_bytes.push_back(bytes(own, member));
    receive_bytes.push_back(bytes(member, own));
    for (Index i = 0; i < send_bytes.back(); ++i) {
      send.push_back(Content(exchange, own, member, static_cast<std::size_t>(i)));
    }
    for (Index i = 0; i < receive_bytes.back(); ++i) {
      expected.push_back(Content(exchange, member, own, static_cast<std::size_t>(i)));
    }
  }
  std::vector<std::byte> received(expected.size(), std::byte{0xEE});
  windows.AllToAll(send.data(), send_bytes, received.data(), receive_bytes, limit, look);
  return received == expected;
}

// Until every other process is here for the `number`th time, or dead.
void Meet(Node& node, int count, int own, int number) {
  node.arrived[own] = number;
  for (int p = 0; p < count; ++p) {
    while (node.dead[p] == 0 && node.arrived[p] < number) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// Groups form again and again at random, of whoever lives, and exchange at random sizes; processes die at random
// operations. 0: all that was received was right, and nothing was lost without a death.
int LiveThrough(Node& node, int count, int own, unsigned seed, std::size_t slot_bytes, int fatal) {
  constexpr int kRounds = 25;
  PeerWindows windows(std::make_unique<DyingMemory>(fatal), node.table, count, own, slot_bytes);
  for (int round = 0; round < kRounds; ++round) {
    Meet(node, count, own, 2 * round + 1);
    std::mt19937 random(seed * 1000 + static_cast<unsigned>(round));  // the same numbers in all processes
    std::vector<int> living;
    for (int p = 0; p < count; ++p) {
      if (node.dead[p] == 0) living.push_back(p);
    }
    Meet(node, count, own, 2 * round + 2);  // else one could die before another one has seen who lives
    std::shuffle(living.begin(), living.end(), random);
    std::vector<int> members;
    for (std::size_t begin = 0, size = 0; begin < living.size(); begin += size) {
      size = std::min<std::size_t>(living.size() - begin, 1 + random() % living.size());
      const std::vector<int> group(living.begin() + static_cast<std::ptrdiff_t>(begin),
                                   living.begin() + static_cast<std::ptrdiff_t>(begin + size));
      if (std::find(group.begin(), group.end(), own) != group.end()) members = group;
    }
    const auto look = [&] {
      for (const int member : members) {
        if (node.dead[member] != 0) throw PeerLost("dead");
      }
    };
    const unsigned salt = random();
    try {
      if (!windows.Reach(members)) {  // whoever dies before its window was opened
        for (const auto start = std::chrono::steady_clock::now();
             std::chrono::steady_clock::now() - start < seconds(60);) {
          look();
        }
        return 2;
      }
      windows.Begin(members, static_cast<std::uint64_t>(round) + 1);
      for (unsigned i = 0; i < 4; ++i) {
        const auto bytes = [&](int from, int to) -> Index {
          std::mt19937 size(salt + i * 10007 + static_cast<unsigned>(from * kMost + to));
          const unsigned kind = size() % 4;
          return kind == 0 ? 0 : size() % (kind == 1 ? 8 : static_cast<unsigned>(6 * slot_bytes));
        };
        const auto exchange = static_cast<std::uint64_t>(round) * 4 + i;
        if (!ExchangeIsRight(windows, members, own, exchange, bytes, seconds(60), look)) return 3;
      }
    } catch (const PeerLost&) {
      bool death = false;
      for (const int member : members) death = death || node.dead[member] != 0;
      if (!death) return 4;
    }
  }
  return 0;
}

class PeerWindowsTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(node_, nullptr);
    ASSERT_LE(PeerWindows::TableBytes(kMost), sizeof(Node::table));
  }
  void TearDown() override { munmap(node_, sizeof(Node)); }
  Node* node_ = MakeNode();
};

TEST_F(PeerWindowsTest, GroupsOfAnyMembersExchangeAnySizes) {
  for (int count = 1; count <= kMost; ++count) {
    for (const std::size_t slot_bytes : {1, 64, 5000}) {
      std::memset(static_cast<void*>(node_), 0, sizeof(Node));
      const unsigned seed = static_cast<unsigned>(count) * 10 + static_cast<unsigned>(slot_bytes);
      ASSERT_EQ(Fork(*node_, count, [&](int own) { return LiveThrough(*node_, count, own, seed, slot_bytes, 0); }), 0)
          << count << " processes, slots of " << slot_bytes;
    }
  }
}

TEST_F(PeerWindowsTest, DeathsAreSeenAndLeaveTheOthersUnharmed) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::memset(static_cast<void*>(node_), 0, sizeof(Node));
    std::mt19937 random(seed);
    const std::size_t slot_bytes = seed % 2 == 0 ? 64 : 700;
    std::vector<int> fatal(kMost, 0);
    const unsigned deaths = 1 + random() % 4;
    for (unsigned i = 0; i < deaths; ++i) fatal[random() % kMost] = 1 + static_cast<int>(random() % 900);
    ASSERT_EQ(Fork(*node_, kMost,
                   [&](int own) {
                     return LiveThrough(*node_, kMost, own, seed, slot_bytes, fatal[static_cast<std::size_t>(own)]);
                   }),
              0)
        << "seed " << seed;
  }
}

// A member that does not come is lost for the others after the limit; the next group does not mind what they have sent.
TEST_F(PeerWindowsTest, AMemberThatIsSilentIsLost) {
  const auto body = [&](int own) {
    const auto bytes = [](int, int) { return Index{1000}; };
    const auto live = [] {};
    PeerWindows windows(std::make_unique<HostPeerMemory>(), node_->table, 3, own, 64);
    Meet(*node_, 3, own, 1);
    const std::vector<int> all = {0, 1, 2}, others = {2, 0, 1};
    if (!windows.Reach(all)) return 2;
    windows.Begin(all, 1);
    if (own != 1) {
      const auto start = std::chrono::steady_clock::now();
      try {
        ExchangeIsRight(windows, all, own, 1, bytes, milliseconds(200), live);
        return 3;
      } catch (const PeerLost&) {
      }
      if (std::chrono::steady_clock::now() - start > seconds(20)) return 4;
    }
    Meet(*node_, 3, own, 2);
    windows.Begin(others, 2);
    return ExchangeIsRight(windows, others, own, 2, bytes, seconds(60), live) ? 0 : 5;
  };
  EXPECT_EQ(Fork(*node_, 3, body), 0);
}

// An error that is no loss, as of MPI or a device, ends what is on the way, too.
TEST_F(PeerWindowsTest, AfterAnyErrorNothingIsOnTheWay) {
  const auto body = [&](int own) {
    const auto bytes = [](int, int) { return Index{1000}; };
    auto memory = std::make_unique<HostPeerMemory>();
    HostPeerMemory& seen = *memory;
    PeerWindows windows(std::move(memory), node_->table, 2, own, 64);
    Meet(*node_, 2, own, 1);
    const std::vector<int> both = {0, 1};
    if (!windows.Reach(both)) return 2;
    windows.Begin(both, 1);
    if (own == 0) {
      try {
        ExchangeIsRight(windows, both, own, 1, bytes, seconds(60), [] { throw InternalError("no loss"); });
        return 3;
      } catch (const InternalError&) {
      }
      if (!seen.Done()) return 4;
    }
    Meet(*node_, 2, own, 2);
    return 0;
  };
  EXPECT_EQ(Fork(*node_, 2, body), 0);
}

TEST_F(PeerWindowsTest, WhoHasNoWindowIsNotReached) {
  const auto body = [&](int own) {
    if (own == 1) {  // entered, and gone
      PeerWindows windows(std::make_unique<HostPeerMemory>(), node_->table, 3, own, 64);
      Meet(*node_, 2, own, 1);
      return 0;
    }
    Meet(*node_, 2, own, 1);
    while (node_->dead[1] == 0) std::this_thread::yield();
    PeerWindows windows(std::make_unique<HostPeerMemory>(), node_->table, 3, own, 64);
    if (windows.Reach(std::vector<int>{0, 2})) return 2;  // has not entered
    if (windows.Reach(std::vector<int>{0, 1})) return 3;
    return windows.Reach(std::vector<int>{0}) ? 0 : 4;
  };
  EXPECT_EQ(Fork(*node_, 2, body), 0);
}

}  // namespace
}  // namespace spotlight
