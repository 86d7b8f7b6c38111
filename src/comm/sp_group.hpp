// The ranks of one sequence-parallel group: the exchange inside a pass, and the leader's word to the others. Over MPI;
// what lies on GPUs of one node goes by windows (comm/peer_windows.hpp), if the world uses them.
//
// All members make the same calls in the same order. A lost or silent member throws PeerLost on all others (one that
// leaves by an exception revokes the communicator); after that the group is of no use. While a large message to a
// silent member is on its way, the error comes only when that member speaks again or is found dead; if it does neither
// for 5 s after the limit, the job is ended (in a pool: the rank that waits), because MPI still holds the memory.
// Nothing here depends on the size of a tensor, so a group may be replaced between two denoising steps.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>

#include "base/sequence_group.hpp"
#include "comm/messages.hpp"
#include "comm/world.hpp"

namespace spotlight {

class SpGroup : public SequenceGroup {
 public:
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365);
  // Longer than the coordinator may take for an answer; a leader that is silent for so long is stuck.
  static constexpr std::chrono::milliseconds kPoolIdle = std::chrono::minutes(15);

  // `ranks`: world ranks of the members, this one among them, in the order of the index. Collective over the members
  // only; several groups may be made at once. A group of one uses no MPI. Outlives neither `world` nor World::Finish.
  // Throws PeerLost; ends the process if a member does not come within the world's limit.
  SpGroup(World& world, std::span<const int> ranks);
  // This rank alone, until a SpotPool gives it others. limit: of the wait for a member within a pass.
  SpGroup(World& world, std::chrono::milliseconds limit);
  ~SpGroup() override;
  SpGroup(const SpGroup&) = delete;
  SpGroup& operator=(const SpGroup&) = delete;

  int size() const override { return size_; }
  int index() const override { return index_; }

  // Any sizes, of 64 bits. The wait has the world's limit and keeps the core, because a pass cannot go on without it.
  void AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                std::span<const Index> receive_bytes) override;

  // The first call of a group finds out whether all members can.
  bool AllToAllOnDevice(const void* send, std::span<const Index> send_bytes, void* receive,
                        std::span<const Index> receive_bytes) override;

  // `bytes` of the leader (index 0) on all. A follower sleeps between looks until the leader calls, for at most
  // `idle_limit` (in a pool kPoolIdle, or its limit if that is longer); from then on the limit of a pass holds. The
  // leader returns when it has sent to all.
  void Broadcast(Bytes& bytes, std::chrono::milliseconds idle_limit = kNoLimit);

  // Collective: the bits that any member sets. Within the limit of a pass.
  unsigned char Union(unsigned char bits);

 private:
  friend class SpotPool;
  struct Mpi;

  // For SpotPool. Ends what any member still waits for in the present communicator.
  void Break() noexcept;
  // The members of `mpi` from now on (null: this rank alone); frees the communicator before.
  void Assign(std::unique_ptr<Mpi> mpi);

  // Collective: whether the windows of all members are within reach, and theirs from now on.
  bool BeginWindows();

  World& world_;
  std::chrono::milliseconds limit_;
  std::chrono::milliseconds longest_idle_ = kNoLimit;
  int size_ = 1;
  int index_ = 0;
  int exceptions_;  // in flight when this was made
  std::unique_ptr<Mpi> mpi_;
  std::optional<bool> by_windows_;  // of the present members; empty: not known yet
};

}  // namespace spotlight
