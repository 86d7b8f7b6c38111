#include "comm/liveness.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <new>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr int kTimesLonger = 3;  // than ever before a rank may be away

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// When the process began, in the kernel's ticks: a number of a process may be given out again. 0: there is none.
std::uint64_t StartOf(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::size_t at = name_end + 1;
  for (int field = 2; field < 21 && at != std::string::npos; ++field) at = text.find(' ', at + 1);  // the 22nd
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at, nullptr, 10);
}

}  // namespace

// All zero: nobody beats here.
struct Liveness::Slot {
  std::atomic<std::int32_t> process;
  std::atomic<std::uint64_t> process_start;
  std::atomic<std::int64_t> beat;           // ns
  std::atomic<std::int64_t> waiting_since;  // ns, in a regroup; 0: elsewhere
  std::atomic<std::int64_t> longest;        // ns between two borders
  std::atomic<bool> measured;               // a whole batch lies between some of them
};

std::size_t Liveness::BytesFor(int ranks) { return sizeof(Slot) * static_cast<std::size_t>(ranks); }

Liveness::Liveness(const World& world, std::chrono::milliseconds detection_time, std::chrono::milliseconds late_limit)
    : detection_time_(detection_time), late_limit_(late_limit), count_(world.local_ranks()), own_(world.local_index()) {
  if (world.node_table() == nullptr || count_ < 2) return;
  slots_ = static_cast<Slot*>(world.node_table());
  Slot& own = slots_[own_];
  own.process_start = StartOf(getpid());
  own.beat = Now();
  own.waiting_since = 0;
  own.longest = 0;
  own.measured = false;
  own.process = getpid();
  thread_ = std::thread([this] { Watch(); });
}

Liveness::~Liveness() {
  if (slots_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  ended_.notify_one();
  thread_.join();
  slots_[own_].process = 0;
}

void Liveness::SetWaiting(bool waiting) {
  last_border_ = 0;
  if (slots_ != nullptr) slots_[own_].waiting_since = waiting ? Now() : 0;
}

void Liveness::AtBorder(bool in_batch) {
  if (slots_ == nullptr) return;
  Slot& own = slots_[own_];
  const std::int64_t now = Now(), before = std::exchange(last_border_, now);
  if (before != 0) own.longest = std::max<std::int64_t>(own.longest, now - before);
  if (std::exchange(in_batch_, in_batch) && !in_batch) own.measured = true;
}

std::int64_t Liveness::PatienceWith(const Slot& slot) const {
  const std::chrono::nanoseconds longest(slot.longest);
  return std::max<std::chrono::nanoseconds>(late_limit_, slot.measured ? kTimesLonger * longest : kUnmeasured).count();
}

std::chrono::milliseconds Liveness::OwnPatience() const {
  // Before the first batch nobody computes for so long, and the others wait.
  if (slots_ == nullptr || !slots_[own_].measured) return late_limit_;
  return std::chrono::milliseconds(PatienceWith(slots_[own_]) / 1000000);
}

std::chrono::milliseconds Liveness::LongestPatience() const {
  std::int64_t longest = std::chrono::nanoseconds(late_limit_).count();
  for (int i = 0; slots_ != nullptr && i < count_; ++i) {
    if (slots_[i].process != 0) longest = std::max(longest, PatienceWith(slots_[i]));
  }
  return std::chrono::milliseconds(longest / 1000000);
}

void Liveness::Watch() {
  const auto period = std::min<std::chrono::milliseconds>(detection_time_ / 8, std::chrono::milliseconds(250));
  std::unique_lock<std::mutex> lock(mutex_);
  while (!done_) {
    const std::int64_t now = Now();
    const std::int64_t pause = now - slots_[own_].beat.exchange(now);
    if (pause < std::chrono::nanoseconds(detection_time_).count() / 2) LookAtOthers(now);
    ended_.wait_for(lock, period, [this] { return done_; });
  }
}

void Liveness::LookAtOthers(std::int64_t now) {
  const std::int64_t limit = std::chrono::nanoseconds(detection_time_).count();
  const std::int64_t since = slots_[own_].waiting_since;
  for (int i = 0; i < count_; ++i) {
    Slot& slot = slots_[i];
    if (i == own_ || slot.process == 0) continue;
    const std::int64_t silent = now - slot.beat;
    if (silent > limit) {
      Kill(slot, silent);
    } else if (since != 0 && now - since > PatienceWith(slot) && slot.waiting_since == 0) {
      Kill(slot, now - since);
    }
  }
}

void Liveness::Kill(Slot& slot, std::int64_t silent) const {
  const pid_t process = slot.process.exchange(0);
  if (process == 0 || StartOf(process) != slot.process_start) return;  // somebody else was faster, or it has ended
  fmt::print(stderr, "{}: killed process {}, a rank of this node that gave no sign for {:.1f} s\n", ProcessName(),
             process, static_cast<double>(silent) * 1e-9);
  kill(process, SIGKILL);
}

}  // namespace spotlight
