#include "comm/mpi_call.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <thread>

#include "base/error.hpp"
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;

bool IsLoss([[maybe_unused]] int error_class) {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  return error_class == MPIX_ERR_PROC_FAILED || error_class == MPIX_ERR_PROC_FAILED_PENDING ||
         error_class == MPIX_ERR_REVOKED;
#else
  return false;
#endif
}

// First MPI error of the completed requests, MPI_SUCCESS if there is none. True: all are complete.
bool TestAll(std::vector<MPI_Request>& requests, int& error) {
  bool all = true;
  for (MPI_Request& request : requests) {
    if (request == MPI_REQUEST_NULL) continue;
    int complete = 0;
    const int code = MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) {
      if (error == MPI_SUCCESS) error = code;
      int error_class = MPI_SUCCESS;
      MPI_Error_class(code, &error_class);
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
      if (error_class == MPIX_ERR_PROC_FAILED_PENDING) all = false;  // the only error that leaves the request active
#endif
      continue;
    }
    if (complete == 0) all = false;
  }
  return all;
}

}  // namespace

void CheckMpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_class(code, &error_class);
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  const std::string message = fmt::format("{}:{}: {}: {} [{}]", file, line, call, text.data(), ProcessName());
  if (IsLoss(error_class)) throw PeerLost(message);
  throw InternalError(message);
}

void Revoke([[maybe_unused]] MPI_Comm comm) noexcept {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  MPIX_Comm_revoke(comm);
#endif
}

bool IsRevoked([[maybe_unused]] MPI_Comm comm) noexcept {
  int revoked = 0;
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  MPIX_Comm_is_revoked(comm, &revoked);
#endif
  return revoked != 0;
}

void WaitAll(MPI_Comm comm, std::vector<MPI_Request> requests, std::chrono::milliseconds limit, Pace pace) {
  constexpr auto kRevoking = std::chrono::seconds(5);
  const Clock::time_point start = Clock::now();
  Clock::time_point deadline = start + limit;
  int error = MPI_SUCCESS;
  bool revoked = false;
  while (!TestAll(requests, error)) {
    const Clock::time_point now = Clock::now();
    if (!revoked && (error != MPI_SUCCESS || now >= deadline)) {
      Revoke(comm);  // else the remaining requests might never complete
      revoked = true;
      deadline = now + kRevoking;
    } else if (revoked && now >= deadline) {
      // MPI still owns the buffers: nothing safe is left.
      fmt::print(stderr, "{}: a lost peer left communication pending; giving up\n", ProcessName());
      if (before_giving_up) {
        before_giving_up();
        _exit(kExitFinished);
      }
      MPI_Abort(MPI_COMM_WORLD, kExitInternal);
    }
    if (now - start < pace.yielding) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pace.nap);
    }
  }
  int error_class = MPI_SUCCESS;
  MPI_Error_class(error, &error_class);
  if (!IsLoss(error_class)) MPI_CHECK(error);
  if (revoked || error != MPI_SUCCESS) {
    Revoke(comm);  // the others may have completed without an error and would wait in the next call
    throw PeerLost(fmt::format("a peer was lost or silent for {:.1f} s [{}]",
                               std::chrono::duration<double>(Clock::now() - start).count(), ProcessName()));
  }
}

void Exchange(MPI_Comm comm, std::span<const PeerBytes> peers, std::chrono::milliseconds limit, Pace pace) {
  constexpr std::size_t kMessage = std::size_t{1} << 26;  // 64 MiB: MPI counts are int
  int own = 0;
  MPI_CHECK(MPI_Comm_rank(comm, &own));
  int error = MPI_SUCCESS;
  std::vector<MPI_Request> requests;
  // `start` begins one message: MPI_Irecv or MPI_Isend.
  const auto begin = [&](std::size_t bytes, const auto& start) {
    for (std::size_t at = 0; at < bytes && error == MPI_SUCCESS; at += kMessage) {
      const int count = static_cast<int>(std::min(kMessage, bytes - at));
      error = start(at, count, &requests.emplace_back(MPI_REQUEST_NULL));
    }
  };
  // Receives before sends, and the next rank first, so that not all begin with the same one.
  const int size = static_cast<int>(peers.size());
  for (int step = 1; step < size; ++step) {
    const int rank = (own + size - step) % size;
    const PeerBytes& peer = peers[static_cast<std::size_t>(rank)];
    begin(peer.receive_bytes, [&](std::size_t at, int count, MPI_Request* request) {
      return MPI_Irecv(static_cast<std::byte*>(peer.receive) + at, count, MPI_BYTE, rank, 0, comm, request);
    });
  }
  for (int step = 1; step < size; ++step) {
    const int rank = (own + step) % size;
    const PeerBytes& peer = peers[static_cast<std::size_t>(rank)];
    begin(peer.send_bytes, [&](std::size_t at, int count, MPI_Request* request) {
      return MPI_Isend(static_cast<const std::byte*>(peer.send) + at, count, MPI_BYTE, rank, 0, comm, request);
    });
  }
  if (error != MPI_SUCCESS) Revoke(comm);  // ends what has begun: nobody may leave with the buffers in MPI's hands
  WaitAll(comm, std::move(requests), limit, pace);
  MPI_CHECK(error);
}

void LookAtPeers(MPI_Comm comm) {
  // A probe for anyone's message fails if anyone is dead. Nobody uses the tag.
  constexpr int kTag = 1;
  int waiting = 0;
  MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm, &waiting, MPI_STATUS_IGNORE));
  if (IsRevoked(comm)) throw PeerLost("a peer has left [" + ProcessName() + "]");
}

void TouchAll(MPI_Comm comm, std::chrono::milliseconds limit) {
  int size = 0;
  MPI_CHECK(MPI_Comm_size(comm, &size));
  const std::byte out{};
  std::vector<std::byte> in(static_cast<std::size_t>(size));
  std::vector<PeerBytes> peers;
  for (std::byte& from : in) peers.push_back({&out, 1, &from, 1});
  Exchange(comm, peers, limit);
}

}  // namespace spotlight
