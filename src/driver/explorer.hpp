// A spot rank: it works in the group that its pool gives it, until the run ends or its notice comes.
//
//   hello -> regroup -> turns (driver/worker.hpp) -> regroup -> turns ...
//
// A regroup follows the loss of a member of the pool, a notice (SIGTERM: the rank commits what its group has in work
// and leaves), and a call of a parked rank. A group that a regroup leaves as it was goes on in the middle of its batch;
// the others give their batch back and pull again, so whoever gets it goes on from the last commit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/node_memory.hpp"
#include "comm/channel.hpp"
#include "comm/group_client.hpp"
#include "comm/spot_pool.hpp"
#include "comm/world.hpp"
#include "config/config.hpp"
#include "driver/resources.hpp"
#include "driver/worker.hpp"
#include "schedule/membership.hpp"

namespace spotlight {

class Explorer {
 public:
  // first_rank: number in the run of rank 0 of this MPI job. joined: a job of its own, which any stop signal takes
  // away; otherwise only SIGTERM to the rank itself is a notice. Collective over the explorers of the job. All
  // arguments must outlive this.
  Explorer(const Config& config, const Resources& resources, World& world, std::uint32_t first_rank, bool joined,
           std::uint64_t run_id, NodeMemory& node, Client& coordinator);

  // Until the coordinator says Finish, or this rank has left; returns its exit code. Throws CoordinatorLost.
  int Run();

 private:
  // What every member sees in the pool, and plans from it.
  struct PoolView {
    std::vector<Member> living;
    GroupPlan plan;
    int speaker = -1;  // first of those that stay
    int degree = 1;    // of groups that are whole
  };

  std::uint32_t rank() const { return first_rank_ + static_cast<std::uint32_t>(world_.rank()); }
  bool HasNotice() const;
  bool TakeTurn();
  bool OtherDegreeWanted();
  bool WaitParked();
  PoolView View(const std::vector<PoolMember>& pool) const;
  bool Regroup(bool batch_broken);
  std::string TakePlace(const GroupPlan& plan);
  void Call(const Message& message);

  const Config& config_;
  World& world_;
  std::uint32_t first_rank_;
  bool joined_;
  std::uint64_t run_id_;
  Client& coordinator_;
  SpotPool pool_;
  GroupClient shared_;
  int heads_;
  Member own_;                          // this rank in the present plan
  PoolView view_;                       // of the last regroup
  std::map<int, int> active_per_host_;  // ranks that are to work, as they did at first; empty: before the first regroup
  bool speaks_ = false;                 // the first of those that stay: reports, and rings for another degree
  std::vector<std::uint32_t> members_;  // of this rank's group, numbers in the run
  Worker worker_;
};

}  // namespace spotlight
