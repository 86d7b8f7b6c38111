#include "comm/mpi_call.hpp"

#include <fmt/format.h>

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

void WaitAll(MPI_Comm comm, std::vector<MPI_Request> requests, std::chrono::milliseconds limit) {
  constexpr auto kYielding = std::chrono::milliseconds(2);  // most waits are shorter than a sleep
  constexpr auto kNap = std::chrono::microseconds(500);
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
      MPI_Abort(MPI_COMM_WORLD, kExitInternal);
    }
    if (now - start < kYielding) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
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

}  // namespace spotlight
