// The exchange of sequence-parallel groups within a node, by windows that their members write into
// (base/peer_memory.hpp). Nothing is made for a group: each process has one window, which the others find in a table of
// the node and open once; a group is a list of members and an epoch.
//
// A window has two slots for each process of the node. A message goes through them in pieces of a slot: the sender
// writes a piece and raises its flag `sent`; the receiver waits for that flag, takes the piece out and raises `taken`,
// which makes room for the piece after the next one. Flags hold (epoch, number of the piece); the epoch of a group is
// larger than all that its members have had, so what a former group has left is never taken for new.
//
// Only the receiver's wait for `sent` is an operation in order with the copies, which on a GPU wait on the device. Room
// is waited for by the host: so when a peer is lost, a member ends its own waits by raising the flags itself, and what
// then goes on reads stale pieces into memory that is discarded, but never writes over a piece that another one has not
// taken.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/peer_memory.hpp"
#include "base/tensor.hpp"

namespace spotlight {

class PeerWindows {
 public:
  // The size of the table, zero at the start, for `processes` of a node.
  static std::size_t TableBytes(int processes);

  // Enters this process, number `own` of the node, into the table. UserError: it cannot have a window.
  PeerWindows(std::unique_ptr<PeerMemory> memory, void* table, int processes, int own, std::size_t slot_bytes);
  PeerWindows(const PeerWindows&) = delete;
  PeerWindows& operator=(const PeerWindows&) = delete;

  // Another number on each node, of those that have a table in common.
  std::uint64_t node() const;
  // The largest epoch that this process has had a group in.
  std::uint64_t last_epoch() const { return epoch_; }
  // Whether the windows of all `members` (numbers on the node) can be reached. Of those that have entered before.
  bool Reach(std::span<const int> members);
  // From now on exchanges are those of `members`, in the order of the group's index: after Reach, on all of them, with
  // the same epoch, larger than last_epoch() of each, and when each has ended its exchanges before, by a loss or not.
  void Begin(std::span<const int> members, std::uint64_t epoch);

  // As SequenceGroup::AllToAll, on the memory that PeerMemory is for; complete on return, because what waits for nobody
  // any more cannot be held by a peer that dies later. `look_at_peers` is called now and then while this
  // waits and throws PeerLost if a member is gone; so does this after `limit`. After that the group is of no use, and
  // this process has no operation on the way.
  void AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                std::span<const Index> receive_bytes, std::chrono::milliseconds limit,
                const std::function<void()>& look_at_peers);

 private:
  struct Head;
  struct Entry;
  struct Pair;

  Pair& Flags(int from, int to) const;
  // Until condition(); ends the waits of this process before it throws.
  void WaitFor(const std::function<bool()>& condition, std::chrono::milliseconds limit,
               const std::function<void()>& look_at_peers);
  void Release();

  std::unique_ptr<PeerMemory> memory_;
  Head* head_;
  Entry* entries_;
  Pair* pairs_;
  const int processes_, own_;
  const std::size_t slot_bytes_;
  std::uint64_t epoch_ = 0;
  std::vector<int> members_;
  int index_ = 0;
  std::vector<std::uint64_t> sent_, taken_;                         // pieces of this epoch, by member
  std::vector<std::pair<PeerMemory::Flag*, std::uint64_t>> waits_;  // of the exchange that is under way
};

}  // namespace spotlight
