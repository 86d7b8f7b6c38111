// How MPI is called: errors checked, waits bounded. Only for the .cpp files of comm/.
#pragma once

#include <mpi.h>

#include <chrono>
#include <vector>

#include "comm/world.hpp"

namespace spotlight {

struct World::Mpi {
  MPI_Comm world = MPI_COMM_NULL;     // duplicate of MPI_COMM_WORLD
  MPI_Comm trainers = MPI_COMM_NULL;  // null on ranks that do not train
};

// Throws PeerLost if `code` says that a peer failed or left, InternalError for any other error.
void CheckMpi(int code, const char* call, const char* file, int line);

// Ends pending and future communication over `comm` on all its ranks with an error. Does nothing without ULFM.
void Revoke(MPI_Comm comm) noexcept;

// Completes `requests`, all on `comm`, sleeping between looks. Throws PeerLost if a peer is lost or `limit` passes;
// then `comm` is revoked. In every case the buffers are free for reuse, or the process has ended.
void WaitAll(MPI_Comm comm, std::vector<MPI_Request> requests, std::chrono::milliseconds limit);

}  // namespace spotlight

#define MPI_CHECK(call) ::spotlight::CheckMpi((call), #call, __FILE__, __LINE__)
