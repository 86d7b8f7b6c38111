// A communicator that MPI is just making must not hear of deaths: Open MPI 5.0 has not given it all its functions yet
// when it can be found already, and a rank that learns of a death in that moment crashes in ompi_comm_revoke_local
// (the same as icl-utk-edu/fenix#136). All members of a pool learn of it at once, so two deaths some milliseconds apart
// could cost the whole pool.
//
// While a MakingCommunicator lives, revocations reach only the communicators that it was given. What the new one has
// missed it need not know: whoever uses it with a dead peer gets an error, and nobody revokes it before all members
// have it (SpotPool). It works by standing before Open MPI's internal function of that name; with an MPI that has none,
// or does not let others stand before it, nothing changes.
#pragma once

#include <mpi.h>

#include <vector>

namespace spotlight {

class MakingCommunicator {
 public:
  // complete: every communicator of this process that may be revoked meanwhile, beside MPI's own. One at a time, in the
  // thread that calls MPI.
  explicit MakingCommunicator(std::vector<MPI_Comm> complete);
  ~MakingCommunicator();
  MakingCommunicator(const MakingCommunicator&) = delete;
  MakingCommunicator& operator=(const MakingCommunicator&) = delete;
};

}  // namespace spotlight
