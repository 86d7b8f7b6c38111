#include "reward/command_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kGrace{2000};     // from SIGTERM to SIGKILL
constexpr milliseconds kLastWords{500};  // from the end of its output to the end of the process
constexpr milliseconds kLook{5};         // between two looks whether it has ended
constexpr std::size_t kMaxReply = 1 << 16;

// Leaves a watcher in the process group (started from a shell that ends, so that the command does not find a child that
// it does not know) and becomes the command. The lifeline is descriptor 3.
constexpr const char* kScript =
    "({ trap '' HUP INT TERM; read -r line; kill -KILL 0; } <&3 3<&- >/dev/null 2>&1 &)\n"
    "exec 3<&- /bin/sh -c \"$1\"";

// A write to a program that has ended must be an error here, not the end of this process.
class SigpipeBlocked {
 public:
  SigpipeBlocked() {
    sigemptyset(&sigpipe_);
    sigaddset(&sigpipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~SigpipeBlocked() {
    const timespec at_once{};
    if (!was_pending_) sigtimedwait(&sigpipe_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeBlocked(const SigpipeBlocked&) = delete;
  SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

 private:
  sigset_t sigpipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

// Closed in every program that this process starts.
Pipe MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw FileError(fmt::format("reward/command: cannot make a pipe: {}", std::strerror(errno)));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Returns the number of the new process, or throws. Descriptors become 0, 1 and 3 there, in this order: a source that
// has one of these numbers has been used by then.
pid_t Spawn(const std::string& command, int input, int output, int lifeline) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, lifeline, 3);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t signals;  // what this process blocks or ignores must still end the command
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);

  std::array<std::string, 5> words = {"sh", "-c", kScript, "sh", command};
  std::array<char*, 6> arguments{};
  std::ranges::transform(words, arguments.begin(), [](std::string& word) { return word.data(); });
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw FileError(fmt::format("reward/command = {}: cannot start /bin/sh: {}", command, std::strerror(error)));
  }
  return pid;
}

void MakeNonBlocking(const Descriptor& descriptor) {
  SPOTLIGHT_REQUIRE(fcntl(descriptor.number(), F_SETFL, O_NONBLOCK) == 0, "a pipe that can be non-blocking");
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    Close();
    number_ = other.Release();
  }
  return *this;
}

void Descriptor::Close() {
  if (number_ >= 0) close(number_);
  number_ = -1;
}

int Descriptor::Release() { return std::exchange(number_, -1); }

CommandProcess::CommandProcess(const std::string& command) : command_(command) {
  Pipe requests = MakePipe();
  Pipe replies = MakePipe();
  Pipe lifeline = MakePipe();
  MakeNonBlocking(requests.write_end);
  MakeNonBlocking(replies.read_end);
  pid_ = Spawn(command, requests.read_end.number(), replies.write_end.number(), lifeline.read_end.number());
  requests_ = std::move(requests.write_end);
  replies_ = std::move(replies.read_end);
  lifeline_ = std::move(lifeline.write_end);
}

CommandProcess::~CommandProcess() {
  requests_.Close();
  kill(-pid_, SIGTERM);
  Ending(kGrace);
  kill(-pid_, SIGKILL);  // what it left running; the number is not reused before the process is waited for
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string CommandProcess::Ask(std::string_view request, milliseconds limit) {
  const SigpipeBlocked blocked;
  const auto deadline = steady_clock::now() + limit;
  std::string reply;
  if (Read(reply) && !reply.empty()) Fail(fmt::format("wrote {} that no image asked for", Quoted(reply)));
  reply.clear();
  std::string_view unsent = request;
  bool listens = true;
  while (reply.find('\n') == std::string::npos) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) {
      const std::string ending = Ending(milliseconds{0});
      Fail(ending.empty() ? fmt::format("has not answered within {} s; make it faster, or raise "
                                        "reward/command_timeout",
                                        std::chrono::duration<double>(limit).count())
                          : ending + " without an answer");
    }
    std::array<pollfd, 2> ends = {
        {{replies_.number(), POLLIN, 0}, {listens && !unsent.empty() ? requests_.number() : -1, POLLOUT, 0}}};
    if (poll(ends.data(), ends.size(), static_cast<int>(std::min<std::int64_t>(left.count(), 60'000))) <= 0) continue;
    // If it listens no more, its output tells why, or its end.
    if (ends[1].revents != 0) listens = Write(unsent);
    if (ends[0].revents != 0 && !Read(reply)) {
      const std::string ending = Ending(kLastWords);
      Fail(fmt::format("{} without an answer{}; its messages are on standard error",
                       ending.empty() ? "closed its standard output" : ending,
                       reply.empty() ? "" : ", its last words were " + Quoted(reply)));
    }
    if (reply.size() > kMaxReply) Fail(fmt::format("answered with a line without end, {}", Quoted(reply)));
  }
  if (!unsent.empty()) Fail(fmt::format("answered {} before it had read the whole image", Quoted(reply)));
  if (reply.find('\n') + 1 != reply.size()) Fail(fmt::format("answered {}, more than one line", Quoted(reply)));
  reply.pop_back();
  return reply;
}

bool CommandProcess::Read(std::string& output) {
  std::array<char, 4096> buffer{};
  const ssize_t count = read(replies_.number(), buffer.data(), buffer.size());
  if (count > 0) output.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

bool CommandProcess::Write(std::string_view& bytes) {
  const ssize_t count = write(requests_.number(), bytes.data(), bytes.size());
  if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  return count >= 0 || errno == EAGAIN || errno == EINTR;
}

std::string CommandProcess::Ending(milliseconds limit) const {
  const auto deadline = steady_clock::now() + limit;
  while (true) {
    siginfo_t info{};
    // WNOWAIT: it stays a process to wait for, so that its number stays ours
    const int error = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (error != 0) return "ended";
    if (info.si_pid == pid_) {
      if (info.si_code == CLD_EXITED) return fmt::format("ended with exit status {}", info.si_status);
      return fmt::format("was killed by signal {} ({})", info.si_status, strsignal(info.si_status));
    }
    if (steady_clock::now() >= deadline) return "";
    std::this_thread::sleep_for(kLook);
  }
}

void CommandProcess::Fail(const std::string& what) const {
  throw FileError(fmt::format("reward/command = {}: {} (scripts/rewards/README.md has the protocol)", command_, what));
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kShown = 200;
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  std::string shown(text.substr(0, kShown));
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return fmt::format("\"{}{}\"", shown, text.size() > kShown ? "..." : "");
}

}  // namespace spotlight
