#include "comm/spot_pool.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "comm/making_communicator.hpp"
#include "comm/mpi_call.hpp"
#include "comm/watchdog.hpp"
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

// The living of `pool`. False: it cannot be had.
bool Shrink([[maybe_unused]] MPI_Comm pool, [[maybe_unused]] MPI_Comm* living) {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  if (MPIX_Comm_shrink(pool, living) != MPI_SUCCESS) return false;
  return MPI_Comm_set_errhandler(*living, MPI_ERRORS_RETURN) == MPI_SUCCESS;
#else
  return false;
#endif
}

// Whether all living members of `pool` say yes. The same on all of them; a loss that not all have seen yet is a no.
bool Agree([[maybe_unused]] MPI_Comm pool, bool yes) {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  int flag = yes ? 1 : 0;
  return MPIX_Comm_agree(pool, &flag) == MPI_SUCCESS && flag == 1;
#else
  return yes;
#endif
}

}  // namespace

struct SpotPool::Mpi {
  MPI_Comm pool = MPI_COMM_NULL;
  bool whole = true;  // nobody has died in it or rung
};

SpotPool::SpotPool(World& world, std::chrono::milliseconds detection_time, std::chrono::milliseconds late_limit)
    : world_(world),
      mpi_(std::make_unique<Mpi>()),
      liveness_(world, detection_time, late_limit),
      group_(std::make_unique<SpGroup>(world, late_limit)),
      host_(world.first_local_rank()) {
  if (!world.under_mpi()) return;
  // The others must regroup, to find and kill the member that hangs: no other group has noticed it.
  before_giving_up = [this] { Ring(); };
  // A library that calls exit: MPI tells the others of a death by signal, but not of an exit code.
  std::atexit([] { std::raise(SIGKILL); });
  mpi_->pool = std::exchange(world.mpi_->pool, MPI_COMM_NULL);
  SPOTLIGHT_REQUIRE(mpi_->pool != MPI_COMM_NULL, "only explorers are in the pool");
  MPI_CHECK(MPI_Comm_size(mpi_->pool, &members_));
}

SpotPool::~SpotPool() { before_giving_up = nullptr; }  // the process ends next: World::Leave

void SpotPool::Ring() noexcept {
  if (mpi_->pool != MPI_COMM_NULL) Revoke(mpi_->pool);
}

bool SpotPool::rung() const noexcept {
  if (mpi_->pool == MPI_COMM_NULL) return false;
  // A rank that is alone makes no other MPI call, and without one MPI would not hear of a revocation.
  int waiting = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &waiting, MPI_STATUS_IGNORE);
  return IsRevoked(mpi_->pool);
}

bool SpotPool::HasLost() const noexcept {
  int failed = 0;
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  MPI_Group dead = MPI_GROUP_NULL;
  if (mpi_->pool == MPI_COMM_NULL || MPIX_Comm_get_failed(mpi_->pool, &dead) != MPI_SUCCESS) return false;
  MPI_Group_size(dead, &failed);
  MPI_Group_free(&dead);
#endif
  return failed > leaving_;
}

SpotPool::Wishes SpotPool::AnyWants(Wishes own, bool in_batch) {
  liveness_.AtBorder(in_batch);
  group_->limit_ = liveness_.OwnPatience();  // the members work in step
  constexpr unsigned char kRegroup = 1, kDrop = 2;
  const unsigned char wanted = group_->Union((own.regroup || rung() ? kRegroup : 0) | (own.drop ? kDrop : 0));
  return {(wanted & kRegroup) != 0, (wanted & kDrop) != 0};
}

Regrouped SpotPool::Regroup(bool stays, bool broken, const std::array<std::int32_t, 5>& word, const PoolPlanner& plan) {
  const PoolMember own{world_.rank(), host_, stays ? 1 : 0, broken ? 1 : 0, word};
  Regrouped result;
  if (mpi_->pool == MPI_COMM_NULL) {
    plan({own});
    return {.members = 1, .tries = 1};
  }
  // Whoever is late is killed long before; if that fails, this rank must not hang with it.
  const Watchdog watchdog("regrouping", world_.limit_ + 2 * liveness_.LongestPatience(), kExitFinished);
  liveness_.SetWaiting(true);
  group_->Break();
  Failpoint("regroup.begin");
  do {
    ++result.tries;
    const Clock::time_point start = Clock::now();
    if (!std::exchange(mpi_->whole, false)) {
      Ring();
      MPI_Comm living = MPI_COMM_NULL;
      {
        const MakingCommunicator making({mpi_->pool, world_.mpi_->world});  // the group's is revoked already
        SPOTLIGHT_REQUIRE(Shrink(mpi_->pool, &living), "MPI cannot find the living members of the pool");
      }
      // Nobody revokes the new pool before all have it. What they agree on does not matter.
      Agree(mpi_->pool, true);
      MPI_Comm_free(&mpi_->pool);
      mpi_->pool = living;
      Failpoint("regroup.shrunk");
    }
    result.shrink_seconds += Seconds(start);
  } while (!TryPlan(own, plan, result));
  liveness_.SetWaiting(false);
  Failpoint("regroup.done");
  return result;
}

// One try on a pool that is whole so far. False: somebody has died meanwhile, and all members start again.
bool SpotPool::TryPlan(const PoolMember& own, const PoolPlanner& plan, Regrouped& result) {
  const Clock::time_point start = Clock::now();
  constexpr int kInts = sizeof(PoolMember) / sizeof(std::int32_t);
  int size = 0;
  MPI_Comm_size(mpi_->pool, &size);
  std::vector<PoolMember> members(static_cast<std::size_t>(size));
  bool fine = MPI_Allgather(&own, kInts, MPI_INT32_T, members.data(), kInts, MPI_INT32_T, mpi_->pool) == MPI_SUCCESS;
  std::vector<int> ranks;
  auto communicator = std::make_unique<SpGroup::Mpi>();
  MPI_Comm& comm = communicator->comm;
  if (fine) {
    Failpoint("regroup.gathered");
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    int color = MPI_UNDEFINED, index = 0;
    const std::vector<std::vector<int>> groups = plan(members);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto found = std::find(groups[g].begin(), groups[g].end(), own.rank);
      if (found == groups[g].end()) continue;
      color = static_cast<int>(g);
      index = static_cast<int>(found - groups[g].begin());
      ranks = groups[g];
    }
    {
      const MakingCommunicator making({mpi_->pool, world_.mpi_->world});  // the group's is revoked already
      fine = MPI_Comm_split(mpi_->pool, color, index, &comm) == MPI_SUCCESS;
    }
    // Where a split fails Open MPI leaves a communicator that is half made: whoever revokes or frees it crashes.
    if (!fine) comm = MPI_COMM_NULL;
    if (comm != MPI_COMM_NULL) fine = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN) == MPI_SUCCESS;
    Failpoint("regroup.split");
  }
  if (!fine) Ring();  // others may still wait in the split
  const bool agreed = Agree(mpi_->pool, fine);
  result.build_seconds += Seconds(start);
  if (!agreed || ranks.size() <= 1) {
    if (comm != MPI_COMM_NULL) {
      Revoke(comm);
      MPI_Comm_free(&comm);
    }
    if (!agreed) return false;
  }
  group_->Assign(ranks.size() > 1 ? std::move(communicator) : nullptr);
  const int stay =
      static_cast<int>(std::count_if(members.begin(), members.end(), [](auto& m) { return m.stays != 0; }));
  result.changed = ranks != group_ranks_ || std::any_of(members.begin(), members.end(), [&](const PoolMember& member) {
                     return member.broken != 0 && std::find(ranks.begin(), ranks.end(), member.rank) != ranks.end();
                   });
  result.members = stay;
  result.lost = members_ - size;
  members_ = stay;
  leaving_ = size - stay;
  group_ranks_ = std::move(ranks);
  return true;
}

}  // namespace spotlight
