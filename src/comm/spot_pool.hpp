// The spot ranks of one MPI job, and the sequence-parallel group that this rank is in at the moment.
//
// The pool is a communicator of all explorers, parked ones included; never of a trainer or the coordinator. When a
// member dies, or one rings, all living members meet in Regroup and leave it with new groups:
//   revoke the group and the pool, shrink the pool, tell each other who is there, plan, split, agree; else start again
// (reference: the repair loop of ULFM programs, Bland et al. 2013, "Post-failure recovery of MPI communication
// capability"). Any member may die at any moment of it. Planned changes (a rank leaves, a parked one comes in) ring and
// take the same way: revoking the pool is a bell that reaches everybody, and costs no step, because members look for it
// only between two denoising steps.
//
// All members of a group make the same calls in the same order.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/liveness.hpp"
#include "comm/sp_group.hpp"
#include "comm/world.hpp"

namespace spotlight {

// What each member tells the others. Plain numbers: it travels as it is.
struct PoolMember {
  std::int32_t rank = 0;               // in the job's world
  std::int32_t host = 0;               // world rank of the first rank of the same host
  std::int32_t stays = 1;              // 0: it takes part in this regroup only, and then leaves
  std::int32_t broken = 0;             // 1: a loss has ended what it was doing with its group
  std::array<std::int32_t, 5> word{};  // what the planner needs to know of it
};

// From all living members, in rank order, the groups: world ranks in the order of their index, each at most once. Must
// give the same on all ranks.
using PoolPlanner = std::function<std::vector<std::vector<int>>(const std::vector<PoolMember>&)>;

struct Regrouped {
  // This rank's group has other members, or another order, than before; or a member that is broken: the others may have
  // come by the bell, in the middle of their batch, and must not go on with it alone.
  bool changed = false;
  int members = 0;  // that stay
  int lost = 0;     // died since the plan before
  int tries = 0;
  double shrink_seconds = 0;  // until only the living are left, of all tries; waiting for the others included
  double build_seconds = 0;   // plan and new communicators
};

class SpotPool {
 public:
  // Collective over the explorers of `world`, whose pool this takes over. Groups start with Regroup; until then this
  // rank is alone. Without MPI it stays so. detection_time: see Liveness. late_limit: how long members wait for one
  // that is alive, within a pass and for a regroup; longer than any step, decoding and judging, as far as that is
  // known.
  SpotPool(World& world, std::chrono::milliseconds detection_time, std::chrono::milliseconds late_limit);
  ~SpotPool();
  SpotPool(const SpotPool&) = delete;
  SpotPool& operator=(const SpotPool&) = delete;

  // Stays the same object; its members change in Regroup.
  SpGroup& group() { return *group_; }

  // Calls all members to Regroup.
  void Ring() noexcept;
  bool rung() const noexcept;
  // Whether a member has died since the last regroup, as far as MPI has heard: call rung() before. For who waits: those
  // that work hear of the death of one of their own group, and the death of one that worked alone is heard by nobody
  // else.
  bool HasLost() const noexcept;
  // What a member may want between two batches, or between two steps of one.
  struct Wishes {
    bool regroup = false;  // also who hears the bell
    bool drop = false;     // nobody needs the batch any more
  };
  // Collective over the group: what any member wants. Throws PeerLost. in_batch: between two steps. How long it takes
  // from one call to the next says how long members wait for a late one, beyond late_limit.
  Wishes AnyWants(Wishes own, bool in_batch);

  // Collective over the living members; losses are no error. A rank in none of the groups is alone afterwards. Ends the
  // process if the others do not come within the world's limit: it then counts as lost.
  Regrouped Regroup(bool stays, bool broken, const std::array<std::int32_t, 5>& word, const PoolPlanner& plan);

 private:
  struct Mpi;

  bool TryPlan(const PoolMember& own, const PoolPlanner& plan, Regrouped& result);

  World& world_;
  std::unique_ptr<Mpi> mpi_;
  Liveness liveness_;
  std::unique_ptr<SpGroup> group_;
  int host_ = 0;
  int members_ = 0;
  int leaving_ = 0;  // members of the pool that took part in the last regroup to leave: their end is no loss
  std::vector<int> group_ranks_;
};

}  // namespace spotlight
