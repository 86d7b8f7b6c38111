// The ranks of one run: who is here, who plays which role, and the few collective calls of start and end.
//
// Under mpirun the world is a duplicate of MPI_COMM_WORLD (which is never used itself) with MPI_ERRORS_RETURN, so that
// a lost peer is an error code and not the end of the process. Without a launcher no MPI function is called at all and
// one process plays every role.
//
// Every collective carries the name of the call and its caller's exit code, so a rank that gives up (AgreeExit) while
// the others still wait in another call ends that call on all of them with WorldEnding instead of a hang. Every wait
// has a deadline; passing it, or the loss of a peer, throws PeerLost.
//
// Not thread safe: one thread of each rank makes these calls, in the same order on all ranks.
#pragma once

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/peer_lost.hpp"
#include "comm/roles.hpp"

namespace spotlight {

// Another rank called AgreeExit while this one was in a different collective call: leave with `code()`, which all ranks
// agree on. The one who catches it does not call AgreeExit again.
class WorldEnding : public std::runtime_error {
 public:
  explicit WorldEnding(int code);
  int code() const { return code_; }

 private:
  int code_;
};

// Of two exit codes the one that the whole run reports. From worst to best: kExitInternal (and any unknown code),
// kExitFile, kExitUsage, kExitStopped, kExitFinished.
int WorseExit(int a, int b);

// The MPI library's own name for itself, first line.
std::string MpiVersion();

class PeerMemory;
class PeerWindows;
class SpGroup;
class SpotPool;
class TrainerGroup;

class World {
 public:
  // Starts MPI if this process was launched by mpirun. `limit` bounds every wait of this class. argc and argv may lose
  // arguments that belong to MPI.
  explicit World(int* argc = nullptr, char*** argv = nullptr, std::chrono::milliseconds limit = kLimit);
  static constexpr std::chrono::milliseconds kLimit = std::chrono::minutes(5);
  // This process alone, also under mpirun, where it is a second world: calls no MPI.
  struct Alone {};
  explicit World(Alone);
  // Ends MPI if Finish was not called.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Another bound for the waits from now on.
  void SetLimit(std::chrono::milliseconds limit) { limit_ = limit; }

  bool under_mpi() const { return mpi_ != nullptr; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // Ranks on this node, this one included, and this one's place among them: for sharing cores and memory.
  int local_ranks() const { return local_ranks_; }
  int local_index() const { return local_index_; }
  // World rank of the first one of them: names the node, however ranks are dealt out to nodes.
  int first_local_rank() const { return first_local_rank_; }
  const std::string& host() const { return host_; }
  // Memory that this node's ranks share, zero at the start, of Liveness::BytesFor(local_ranks()); null where it cannot
  // be had. It has no name and ends with its last user.
  void* node_table() const { return node_table_; }

  // That groups of ranks of a node exchange by windows in each other's memory (comm/peer_windows.hpp) where all members
  // can. On all ranks or none, before the first group. memory: null where this rank can not. Returns whether it has a
  // window now; UserError: why it has none although it could.
  bool UseWindows(std::unique_ptr<PeerMemory> memory, std::size_t slot_bytes);

  // kAll until AssignRoles.
  Role role() const { return role_; }
  // Of all ranks, after AssignRoles.
  const std::vector<Role>& roles() const { return roles_; }
  // World rank of the coordinator (0 unless SPOTLIGHT_ROLE says otherwise).
  int coordinator() const { return coordinator_; }
  int trainers() const { return trainers_; }
  // Place among the trainers in rank order; 0 for kAll, -1 for a rank that is no trainer.
  int trainer_index() const { return trainer_index_; }
  int explorers() const { return explorers_; }

  // Whether MPI runs with fault tolerance (mpirun --with-ft ulfm). False without MPI.
  bool fault_tolerant() const { return fault_tolerant_; }

  // Collective: gives each rank its role (see PlanRoles) and makes the trainers' communicator. The same UserError is
  // thrown on every rank. Explorers get the communicator of a SpotPool. Also tells base/error.hpp the process name
  // "rank 2 (explorer) on host".
  void AssignRoles(int trainers);
  // Collective: the job is a spot job of its own, all ranks are explorers.
  void AssignExplorers();

  // Collective: `text` of `root` on every rank.
  std::string Broadcast(const std::string& text, int root = 0);
  // Collective: everybody's text in rank order on every rank.
  std::vector<std::string> AllGather(const std::string& text);
  // Collective: the worst exit code of all ranks (WorseExit), with which all are to exit. Never throws: if the others
  // cannot be reached the result is at least as bad as kExitInternal.
  int AgreeExit(int code) noexcept;

  // From here on ranks come to their end one by one, each when the coordinator tells it to: no agreement, and no
  // collective call but those of the trainers and of a pool.
  void Part() { parted_ = true; }
  bool parted() const { return parted_; }

  // Collective: ends MPI and tells scripts/mpirun.sh the exit code. Returns `code` for main to return.
  int Finish(int code) noexcept;
  // True on one rank, which is to print the reason: after AgreeExit the lowest one whose own code is the agreed one.
  bool reports() const { return rank_ == reporter_; }
  // The end of a rank whose peers may be dead or still at work: says nothing to MPI, which would wait for the dead, and
  // waits for nobody. The coordinator tells scripts/mpirun.sh the exit code; MPI itself must not hear of one, because
  // it would end the others.
  [[noreturn]] void Leave(int code) noexcept;
  // The same after the loss of a peer that ends the run: every survivor tells scripts/mpirun.sh the code. A spot rank
  // cannot know whether it is the run that has ended, or only its own connection: any other rank's code replaces its.
  [[noreturn]] void LeaveAfterLoss(int code) noexcept;
  // The code of a coordinator that will end by an exception. Called while the workers still have their connections:
  // they see these end, and would tell theirs first.
  void NoteExit(int code) const noexcept { WriteExitCode(code, true); }
  // Ends the whole job at once: for internal errors only.
  [[noreturn]] void Abort(int code);

 private:
  friend class SpGroup;
  friend class SpotPool;
  friend class TrainerGroup;
  struct Mpi;
  enum class Call : int;

  int Meet(Call call, int exit_code);
  void SplitByRole();
  void WriteExitCode(int code, bool final) const noexcept;

  std::unique_ptr<Mpi> mpi_;
  std::chrono::milliseconds limit_;
  std::string host_;
  void* node_table_ = nullptr;
  void* window_table_ = nullptr;
  bool uses_windows_ = false;             // the same on all ranks
  std::unique_ptr<PeerWindows> windows_;  // null: not on this one
  Role role_ = Role::kAll;
  std::vector<Role> roles_ = {Role::kAll};
  int rank_ = 0;
  int size_ = 1;
  int local_ranks_ = 1;
  int local_index_ = 0;
  int first_local_rank_ = 0;
  int coordinator_ = 0;
  int trainers_ = 1;
  int trainer_index_ = 0;
  int explorers_ = 1;
  int reporter_ = 0;
  bool fault_tolerant_ = false;
  bool finished_ = false;
  bool parted_ = false;
};

}  // namespace spotlight
