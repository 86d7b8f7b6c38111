// How MPI is called: errors checked, waits bounded. Only for the .cpp files of comm/.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "comm/peer_bytes.hpp"
#include "comm/sp_group.hpp"
#include "comm/world.hpp"

namespace spotlight {

struct World::Mpi {
  MPI_Comm world = MPI_COMM_NULL;     // duplicate of MPI_COMM_WORLD
  MPI_Comm trainers = MPI_COMM_NULL;  // null on ranks that do not train
  MPI_Comm pool = MPI_COMM_NULL;      // of the explorers; null on others, and once a SpotPool has taken it
};

struct SpGroup::Mpi {
  MPI_Comm comm = MPI_COMM_NULL;
};

// Throws PeerLost if `code` says that a peer failed or left, InternalError for any other error.
void CheckMpi(int code, const char* call, const char* file, int line);

// Ends pending and future communication over `comm` on all its ranks with an error. Does nothing without ULFM.
void Revoke(MPI_Comm comm) noexcept;
bool IsRevoked(MPI_Comm comm) noexcept;

// How a wait looks for its end: first it only yields the core, then it sleeps between looks. MPI moves data only while
// somebody looks.
struct Pace {
  std::chrono::milliseconds yielding;
  std::chrono::microseconds nap;
};
inline constexpr Pace kUsualPace = {std::chrono::milliseconds(2), std::chrono::microseconds(500)};

// Set in the ranks of a pool, whose job goes on without them: what a rank that MPI cannot be freed from calls before it
// ends alone, where else the whole job would end.
inline std::function<void()> before_giving_up;

// Completes `requests`, all on `comm`. Throws PeerLost if a peer is lost or `limit` passes; then `comm` is revoked. In
// every case the buffers are free for reuse, or the process has ended.
void WaitAll(MPI_Comm comm, std::vector<MPI_Request> requests, std::chrono::milliseconds limit, Pace pace = kUsualPace);

// Every rank of `comm` calls it with one entry per rank. Entry [own rank] is not touched. Sizes are not bounded by int.
// Throws as WaitAll does.
void Exchange(MPI_Comm comm, std::span<const PeerBytes> peers, std::chrono::milliseconds limit, Pace pace = kUsualPace);

// Throws PeerLost if a rank of `comm` is dead or `comm` is revoked. Waits for nobody.
void LookAtPeers(MPI_Comm comm);

// Sends a byte from every rank to every other: a peer's address is looked up at the first message, and that look-up
// blocks for ever if the peer has died by then.
void TouchAll(MPI_Comm comm, std::chrono::milliseconds limit);

}  // namespace spotlight

#define MPI_CHECK(call) ::spotlight::CheckMpi((call), #call, __FILE__, __LINE__)
