#include "comm/making_communicator.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

bool making = false;
std::vector<MPI_Comm> may_be_revoked;

}  // namespace

MakingCommunicator::MakingCommunicator(std::vector<MPI_Comm> complete) {
  SPOTLIGHT_REQUIRE(!making, "one communicator at a time");
  may_be_revoked = std::move(complete);
  may_be_revoked.insert(may_be_revoked.end(), {MPI_COMM_WORLD, MPI_COMM_SELF});
  making = true;
}

MakingCommunicator::~MakingCommunicator() { making = false; }

}  // namespace spotlight

#ifdef OPEN_MPI
// Stands before the function of that name in libmpi, which calls it through its table of procedures: marks `comm`
// revoked, for collective calls only or for all; true if it was not before.
extern "C" __attribute__((visibility("default"))) bool ompi_comm_revoke_local(MPI_Comm comm, bool collective_only) {
  using Function = bool (*)(MPI_Comm, bool);
  static const auto revoke = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "ompi_comm_revoke_local"));
  using spotlight::may_be_revoked;
  const auto known = std::find(may_be_revoked.begin(), may_be_revoked.end(), comm);
  if (revoke == nullptr || (spotlight::making && known == may_be_revoked.end())) return false;
  return revoke(comm, collective_only);
}
#endif
