// Several processes as the ranks of a node; some are killed.
#include "base/node_memory.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::string NewSession() {
  static int count = 0;
  return "test_" + std::to_string(getpid()) + "_" + std::to_string(++count);
}

std::string SessionFile(const std::string& session) { return "/dev/shm/spotlight-" + session; }
bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

NodeBlob::Fill With(char value) {
  return [value](std::span<std::byte> bytes) { std::memset(bytes.data(), value, bytes.size()); };
}
void NoFill(std::span<std::byte>) { FAIL() << "a neighbour has it"; }

bool IsAll(const NodeBlob& blob, char value) {
  return std::all_of(blob.bytes().begin(), blob.bytes().end(),
                     [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

// Another rank of the node: runs `work`, whose result is its exit code.
class Rank {
 public:
  template <typename Work>
  explicit Rank(Work work) : pid_(fork()) {
    if (pid_ == 0) _exit(work());
  }
  ~Rank() {
    if (pid_ > 0) Kill();
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  int Wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void Kill() {
    kill(pid_, SIGKILL);
    Wait();
  }

 private:
  pid_t pid_;
};

// What ranks tell each other: a byte each time.
class Signals {
 public:
  Signals() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~Signals() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  void Send() const { EXPECT_EQ(write(ends_[1], "s", 1), 1); }
  void Await() const {
    char byte;
    EXPECT_EQ(read(ends_[0], &byte, 1), 1);
  }
  int CountSent() const {
    fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    int count = 0;
    for (char byte; read(ends_[0], &byte, 1) == 1;) ++count;
    return count;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(NodeMemory, IsOfOneProcessWithoutASession) {
  NodeMemory node;
  EXPECT_FALSE(node.shared());
  const NodeBlob first = node.Get("weights", 3 * kMiB + 5, With(1)), second = node.Get("weights", 7, With(2));
  EXPECT_EQ(first.bytes().size(), 3 * kMiB + 5);
  EXPECT_TRUE(IsAll(first, 1));
  EXPECT_TRUE(IsAll(second, 2));
  EXPECT_FALSE(node.Has("weights"));
  EXPECT_TRUE(node.Keys().empty());
}

TEST(NodeMemory, IsFilledOnceForAllAndGoesWithTheLast) {
  const std::string session = NewSession();
  NodeBlob kept;
  {
    NodeMemory first(session);
    ASSERT_TRUE(first.shared());
    const NodeBlob blob = first.Get("base-bf16", 5 * kMiB, With(3));
    {
      NodeMemory second(session);
      kept = second.Get("base-bf16", 5 * kMiB, NoFill);
      EXPECT_EQ(second.Keys(), std::vector<std::string>{"base-bf16"});
    }
    EXPECT_TRUE(first.Has("base-bf16")) << "the first one still uses it";
    const NodeBlob again = first.Get("base-bf16", 5 * kMiB, NoFill);
    EXPECT_TRUE(IsAll(again, 3) && again.Intact());
  }
  EXPECT_FALSE(Exists(SessionFile(session)));
  EXPECT_FALSE(Exists(SessionFile(session) + "-base-bf16"));
  EXPECT_TRUE(IsAll(kept, 3)) << "memory outlives its name";
}

TEST(NodeMemory, CannotBeWrittenOnceItIsFilled) {
  for (const std::string& session : {std::string(), NewSession()}) {
    Rank rank([&] {
      std::signal(SIGSEGV, [](int) { _exit(42); });
      NodeMemory node(session);
      NodeBlob blob = node.Get("weights", 100, With(1));
      if (!session.empty()) {
        node.Drop("weights");
        unlink(SessionFile(session).c_str());
      }
      blob.bytes()[50] = std::byte{2};
      return 0;
    });
    EXPECT_EQ(rank.Wait(), 42) << "session '" << session << "'";
  }
}

TEST(NodeMemory, DropTakesTheName) {
  NodeMemory node(NewSession());
  const NodeBlob old = node.Get("weights-1", 100, With(1));
  node.Drop("weights-1");
  node.Drop("weights-0");
  EXPECT_FALSE(node.Has("weights-1"));
  const NodeBlob fresh = node.Get("weights-1", 100, With(2));
  EXPECT_TRUE(IsAll(old, 1) && IsAll(fresh, 2));
}

TEST(NodeMemory, KeepsNothingOfAFillThatFailed) {
  NodeMemory node(NewSession());
  const auto fails = [](std::span<std::byte> bytes) {
    std::fill_n(bytes.begin(), 10, std::byte{1});
    throw UserError("tensor x is missing");
  };
  EXPECT_THROW(node.Get("base", 100, fails), UserError);
  EXPECT_FALSE(node.Has("base"));
  EXPECT_TRUE(IsAll(node.Get("base", 100, With(2)), 2));
}

TEST(NodeMemory, IsFilledByOneOfMany) {
  const std::string session = NewSession();
  NodeMemory node(session);
  const Signals filled;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int i = 0; i < 8; ++i) {
    ranks.push_back(std::make_unique<Rank>([&] {
      NodeMemory own(session);
      const NodeBlob blob = own.Get("base", 4 * kMiB, [&](std::span<std::byte> bytes) {
        filled.Send();
        std::this_thread::sleep_for(milliseconds(20));
        With(4)(bytes);
      });
      return IsAll(blob, 4) && blob.Intact() ? 0 : 1;
    }));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0);
  EXPECT_EQ(filled.CountSent(), 1);
}

TEST(NodeMemory, AnotherTakesOverFromAFillerThatDied) {
  const std::string session = NewSession();
  NodeMemory node(session);
  const Signals half, waits;
  Rank filler([&] {
    NodeMemory own(session);
    own.Get("base", kMiB, [&](std::span<std::byte> bytes) {
      With(9)(bytes.first(kMiB / 2));
      half.Send();
      pause();
    });
    return 0;
  });
  half.Await();
  EXPECT_FALSE(node.Has("base")) << "half-filled memory has no name";
  Rank next([&] {
    NodeMemory own(session);
    waits.Send();
    const NodeBlob blob = own.Get("base", kMiB, With(5));
    return IsAll(blob, 5) ? 0 : 1;
  });
  waits.Await();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(node.Has("base")) << "the next one waits";
  filler.Kill();
  EXPECT_EQ(next.Wait(), 0);
  EXPECT_TRUE(IsAll(node.Get("base", kMiB, NoFill), 5));
}

TEST(NodeMemory, IsWholeOrAbsentAfterAKillAtAnyInstant) {
  const std::string session = NewSession();
  NodeMemory node(session);
  std::mt19937 random(7);
  int whole = 0, absent = 0;
  for (int i = 0; i < 300; ++i) {
    Rank rank([&] {
      NodeMemory own(session);
      const NodeBlob blob = own.Get("base", 3 * kMiB, With(6));
      own.Drop("base");
      pause();
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    if (i % 3 == 0) {
      const NodeBlob mine = node.Get("base", 3 * kMiB, With(6));  // beside it
      ASSERT_TRUE(IsAll(mine, 6) && mine.Intact());
    }
    rank.Kill();
    if (node.Has("base")) {
      ++whole;
      const NodeBlob blob = node.Get("base", 3 * kMiB, NoFill);
      ASSERT_TRUE(IsAll(blob, 6) && blob.Intact());
      node.Drop("base");
    } else {
      ++absent;
    }
  }
  EXPECT_GT(whole, 0);
  EXPECT_GT(absent, 0);
}

TEST(NodeMemory, DoesNotWaitForeverForAFillerThatStands) {
  const std::string session = NewSession();
  const Signals filling;
  Rank filler([&] {
    NodeMemory own(session);
    own.Get("base", 100, [&](std::span<std::byte>) {
      filling.Send();
      pause();
    });
    return 0;
  });
  filling.Await();
  NodeMemory node(session, milliseconds(30));
  const int warnings = CountWarnings();
  testing::internal::CaptureStdout();
  const NodeBlob first = node.Get("base", 100, With(1)), second = node.Get("base", 100, With(2));
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(IsAll(first, 1) && IsAll(second, 2));
  EXPECT_EQ(CountWarnings(), warnings + 1) << "one for all";
  EXPECT_NE(said.find(SessionFile(session) + "-base: a neighbour has been filling it for"), std::string::npos) << said;
}

TEST(NodeMemory, FillsAnewWhatIsNotWholeOrOfAnotherSize) {
  const std::string session = NewSession();
  NodeMemory node(session);
  const std::string path = SessionFile(session) + "-base";
  node.Get("base", 100, With(1));
  EXPECT_TRUE(IsAll(node.Get("base", 200, With(2)), 2)) << "another size";
  ASSERT_EQ(chmod(path.c_str(), S_IRUSR | S_IWUSR), 0);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).write("XXXX", 4);
  EXPECT_TRUE(IsAll(node.Get("base", 200, With(3)), 3)) << "a damaged header";
  ASSERT_EQ(unlink(path.c_str()), 0);
  std::ofstream(path) << "short";
  EXPECT_TRUE(IsAll(node.Get("base", 200, With(4)), 4)) << "a short file";
}

TEST(NodeBlob, TellsDamagedContents) {
  const std::string session = NewSession();
  NodeMemory node(session);
  const std::string path = SessionFile(session) + "-base";
  node.Get("base", 1000, With(1));
  for (const int place : {0, 500, 992, 999}) {
    ASSERT_EQ(chmod(path.c_str(), S_IRUSR | S_IWUSR), 0);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto write = [&](char value) { file.seekp(4096 + place).put(value).flush(); };
    write(2);
    EXPECT_FALSE(node.Get("base", 1000, NoFill).Intact()) << place;
    write(1);
    EXPECT_TRUE(node.Get("base", 1000, NoFill).Intact()) << place;
  }
}

TEST(NodeMemory, LeftoversOfTheKilledGoAndNoOthers) {
  const std::string dead = NewSession(), alive = NewSession(), lost = NewSession();
  const Signals ready;
  NodeMemory node(alive);
  node.Get("base", 100, With(1));
  const auto work = [&] {
    NodeMemory own(dead);
    own.Get("base", kMiB, With(1));
    own.Get("weights-0", 100, With(1));
    ready.Send();
    pause();
    return 0;
  };
  {
    Rank first(work), second(work);
    ready.Await();
    ready.Await();
    first.Kill();
    NodeMemory::RemoveLeftovers();
    EXPECT_TRUE(Exists(SessionFile(dead) + "-base")) << "one still uses it";
    second.Kill();
  }
  std::ofstream(SessionFile(lost) + "-base") << "a name without its session";
  ASSERT_TRUE(Exists(SessionFile(dead) + "-base") && Exists(SessionFile(dead) + "-weights-0"));
  EXPECT_GE(NodeMemory::RemoveLeftovers(), 2);
  for (const std::string& session : {dead, lost}) {
    for (const char* name : {"", "-base", "-weights-0"}) {
      EXPECT_FALSE(Exists(SessionFile(session) + name)) << session << name;
    }
  }
  EXPECT_TRUE(node.Has("base")) << "of a session in use";
}

TEST(NodeMemory, ComingAndGoingTogetherLeavesNothing) {
  const std::string session = NewSession();
  const auto work = [&] {
    for (int i = 0; i < 150; ++i) {
      NodeMemory node(session);
      if (!node.shared()) return 1;
      const NodeBlob blob = node.Get("base", 100, With(1));
      if (!IsAll(blob, 1)) return 2;
      if (!NodeMemory(session).Has("base")) return 3;  // it is in use, so nobody may have removed it
    }
    return 0;
  };
  Rank first(work), second(work), third(work);
  EXPECT_EQ(first.Wait(), 0);
  EXPECT_EQ(second.Wait(), 0);
  EXPECT_EQ(third.Wait(), 0);
  EXPECT_FALSE(Exists(SessionFile(session)));
  EXPECT_FALSE(Exists(SessionFile(session) + "-base"));
}

// Resident memory of a mapping, with what is shared counted by halves for two.
double ProportionalMiB(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) inside = begin <= wanted && wanted < end;
    double kibibytes = 0;
    if (inside && std::sscanf(line.c_str(), "Pss: %lf", &kibibytes) == 1) return kibibytes / 1024;
  }
  return -1;
}

TEST(NodeMemory, TwoRanksHoldOneCopy) {
  const std::string session = NewSession();
  NodeMemory node(session);
  const NodeBlob blob = node.Get("base", 64 * kMiB, With(1));
  EXPECT_NEAR(ProportionalMiB(blob.bytes().data()), 64, 1);
  const Signals mapped, measured;
  Rank rank([&] {
    NodeMemory own(session);
    const NodeBlob same = own.Get("base", 64 * kMiB, NoFill);
    const bool whole = IsAll(same, 1);
    mapped.Send();
    measured.Await();
    return whole ? 0 : 1;
  });
  mapped.Await();
  // The fork has a third mapping, the first one's.
  const double third = ProportionalMiB(blob.bytes().data());
  measured.Send();
  EXPECT_EQ(rank.Wait(), 0);
  EXPECT_LT(third, 33);
}

// From now on /dev/shm is, for this process alone, a disk of 4 MiB.
bool UseSmallDisk() {
  const std::string user = "0 " + std::to_string(getuid()) + " 1";
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << user;
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4m,mode=1777") == 0;
}

TEST(NodeMemory, TooSmallADiskEndsNothing) {
  Rank rank([] {
    if (!UseSmallDisk()) return 77;
    NodeMemory node(NewSession());
    if (!node.shared()) return 1;
    const int warnings = CountWarnings();
    testing::internal::CaptureStdout();
    const NodeBlob large = node.Get("base", 16 * kMiB, With(1)), small = node.Get("weights-0", kMiB, With(2));
    const NodeBlob third = node.Get("weights-1", 4 * kMiB, With(3));
    const std::string said = testing::internal::GetCapturedStdout();
    if (!IsAll(large, 1) || !IsAll(small, 2) || !IsAll(third, 3)) return 2;
    if (node.Has("base") || !node.Has("weights-0") || node.Has("weights-1")) return 3;
    if (CountWarnings() != warnings + 1 || said.find("base: no room for 16.0 MiB") == std::string::npos) return 4;
    return 0;
  });
  const int code = rank.Wait();
  if (code == 77) GTEST_SKIP() << "this machine allows no namespaces";
  EXPECT_EQ(code, 0);
}

TEST(NodeMemory, NamesAreChecked) {
  EXPECT_THROW(NodeMemory("a-b"), InternalError);
  EXPECT_THROW(NodeMemory("a/b"), InternalError);
  NodeMemory node(NewSession());
  EXPECT_THROW(node.Get("../x", 1, With(1)), InternalError);
  EXPECT_THROW(node.Get("x", 0, With(1)), InternalError);
}

}  // namespace
}  // namespace spotlight
