#include "comm/peer_windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>

#include "base/error.hpp"
#include "comm/peer_lost.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::uint64_t kSlots = 2;
constexpr int kEpochShift = 40;  // 10^12 pieces in each of 10^7 epochs
constexpr std::size_t kLine = 64;

}  // namespace

// Flags of what one process sends to one other, each on its own cache line.
struct PeerWindows::Pair {
  alignas(kLine) PeerMemory::Flag sent;
  alignas(kLine) PeerMemory::Flag taken;
};

struct PeerWindows::Head {
  alignas(kLine) std::atomic<std::uint64_t> node;
};

struct PeerWindows::Entry {
  alignas(kLine) std::atomic<std::uint32_t> entered;
  PeerMemory::Handle window;
};

std::size_t PeerWindows::TableBytes(int processes) {
  const auto n = static_cast<std::size_t>(processes);
  return sizeof(Head) + n * sizeof(Entry) + n * n * sizeof(Pair);
}

PeerWindows::PeerWindows(std::unique_ptr<PeerMemory> memory, void* table, int processes, int own,
                         std::size_t slot_bytes)
    : memory_(std::move(memory)),
      head_(static_cast<Head*>(table)),
      entries_(reinterpret_cast<Entry*>(head_ + 1)),
      pairs_(reinterpret_cast<Pair*>(entries_ + processes)),
      processes_(processes),
      own_(own),
      slot_bytes_(slot_bytes) {
  SPOTLIGHT_REQUIRE(slot_bytes > 0 && own >= 0 && own < processes, "a process of the node");
  std::random_device random;
  std::uint64_t none = 0;
  head_->node.compare_exchange_strong(none, std::uint64_t{random()} << 32 | random() | 1);  // by whoever is first
  memory_->UseFlags(table, TableBytes(processes));
  entries_[own].window = memory_->MakeWindow(static_cast<std::size_t>(processes) * kSlots * slot_bytes);
  entries_[own].entered.store(1, std::memory_order_release);
}

std::uint64_t PeerWindows::node() const { return head_->node; }

PeerWindows::Pair& PeerWindows::Flags(int from, int to) const { return pairs_[from * processes_ + to]; }

bool PeerWindows::Reach(std::span<const int> members) {
  return std::all_of(members.begin(), members.end(), [this](int member) {
    const Entry& entry = entries_[member];
    return member == own_ ||
           (entry.entered.load(std::memory_order_acquire) == 1 && memory_->OpenWindow(member, entry.window));
  });
}

void PeerWindows::Begin(std::span<const int> members, std::uint64_t epoch) {
  SPOTLIGHT_REQUIRE(epoch > epoch_, "a later group has a larger epoch");
  const auto found = std::find(members.begin(), members.end(), own_);
  SPOTLIGHT_REQUIRE(found != members.end(), "only members begin");
  epoch_ = epoch;
  members_.assign(members.begin(), members.end());
  index_ = static_cast<int>(found - members.begin());
  sent_.assign(members.size(), 0);
  taken_.assign(members.size(), 0);
}

void PeerWindows::AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                           std::span<const Index> receive_bytes, milliseconds limit,
                           const std::function<void()>& look_at_peers) {
  const std::size_t size = members_.size(), own = static_cast<std::size_t>(index_);
  SPOTLIGHT_REQUIRE(send_bytes.size() == size && receive_bytes.size() == size, "one size per member");
  SPOTLIGHT_REQUIRE(send_bytes[own] == receive_bytes[own], "what a member keeps is what it sends to itself");
  std::vector<const std::byte*> from(size);
  std::vector<std::byte*> to(size);
  std::size_t longest = 0;
  const auto* out = static_cast<const std::byte*>(send);
  auto* in = static_cast<std::byte*>(receive);
  for (std::size_t p = 0; p < size; ++p) {
    from[p] = out;
    to[p] = in;
    out += send_bytes[p];
    in += receive_bytes[p];
    if (p != own)
      longest =
          std::max({longest, static_cast<std::size_t>(send_bytes[p]), static_cast<std::size_t>(receive_bytes[p])});
  }
  waits_.clear();
  const auto mark = [this](std::uint64_t pieces) { return epoch_ << kEpochShift | pieces; };
  const auto slot = [this](int sender, std::uint64_t piece) {
    return (static_cast<std::size_t>(sender) * kSlots + piece % kSlots) * slot_bytes_;
  };
  if (send_bytes[own] > 0) memory_->Copy(from[own], to[own], static_cast<std::size_t>(send_bytes[own]));
  for (std::size_t begin = 0; begin < longest; begin += slot_bytes_) {
    const auto piece_of = [&](Index bytes) {
      return std::min(slot_bytes_, static_cast<std::size_t>(bytes) - std::min(begin, static_cast<std::size_t>(bytes)));
    };
    for (std::size_t step = 1; step < size; ++step) {
      const std::size_t p = (own + step) % size;
      const std::size_t bytes = piece_of(send_bytes[p]);
      if (bytes == 0) continue;
      Pair& flags = Flags(own_, members_[p]);
      const std::uint64_t piece = sent_[p]++;
      if (piece >= kSlots) {
        const std::uint64_t taken = mark(piece + 1 - kSlots);
        WaitFor([&] { return flags.taken.load(std::memory_order_acquire) >= taken; }, limit, look_at_peers);
      }
      memory_->Push(members_[p], slot(own_, piece), from[p] + begin, bytes);
      memory_->Raise(flags.sent, mark(piece + 1));
    }
    for (std::size_t step = 1; step < size; ++step) {
      const std::size_t p = (own + size - step) % size;
      const std::size_t bytes = piece_of(receive_bytes[p]);
      if (bytes == 0) continue;
      Pair& flags = Flags(members_[p], own_);
      const std::uint64_t piece = taken_[p]++;
      waits_.emplace_back(&flags.sent, mark(piece + 1));
      memory_->Await(flags.sent, mark(piece + 1));
      memory_->Take(slot(members_[p], piece), to[p] + begin, bytes);
      memory_->Raise(flags.taken, mark(piece + 1));
    }
  }
  WaitFor([this] { return memory_->Done(); }, limit, look_at_peers);
}

void PeerWindows::WaitFor(const std::function<bool()>& condition, milliseconds limit,
                          const std::function<void()>& look_at_peers) {
  constexpr milliseconds kBetweenLooks{1}, kYielding{2};
  const Clock::time_point start = Clock::now();
  for (Clock::time_point look = start + kBetweenLooks; !condition();) {
    memory_->Done();  // what the others wait for may be among it
    const Clock::time_point now = Clock::now();
    try {
      if (now >= look) look_at_peers();
      if (now - start > limit) {
        throw PeerLost(fmt::format("a member was silent for {:.1f} s [{}]",
                                   std::chrono::duration<double>(now - start).count(), ProcessName()));
      }
    } catch (...) {  // MPI's other errors, too: what is on the way must not write into memory that is freed
      Release();
      members_.clear();
      throw;
    }
    if (now >= look) look = now + kBetweenLooks;
    if (now - start < kYielding) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

// Ends the operations of this process. A flag may be set back by its sender, who still works: so again and again.
void PeerWindows::Release() {
  constexpr std::chrono::seconds kEnding{10};
  const Clock::time_point start = Clock::now();
  while (!memory_->Done()) {
    for (const auto& [flag, value] : waits_) {
      if (flag->load() < value) flag->store(value);
    }
    SPOTLIGHT_REQUIRE(Clock::now() - start < kEnding, "operations on the way to a lost peer do not end");
    std::this_thread::yield();
  }
}

}  // namespace spotlight
