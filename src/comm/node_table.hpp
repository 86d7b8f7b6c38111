// Anonymous memory that the ranks of a node share. Only for the .cpp files of comm/.
#pragma once

#include <mpi.h>

#include <cstddef>

namespace spotlight {

// Collective over the ranks of one node: `bytes` of zeros, mapped by all. Null on all if one of them cannot map it
// (ranks in containers that do not see each other's processes). Throws PeerLost. Never unmapped.
void* MapNodeTable(MPI_Comm node, std::size_t bytes);

}  // namespace spotlight
