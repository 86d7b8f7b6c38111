#include "comm/node_table.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "comm/mpi_call.hpp"

namespace spotlight {

void* MapNodeTable(MPI_Comm node, std::size_t bytes) {
  int rank = 0;
  MPI_CHECK(MPI_Comm_rank(node, &rank));
  // The first one makes it; the others open it by way of the first one's file table.
  std::array<std::int64_t, 2> owner = {getpid(), -1};
  if (rank == 0) {
    owner[1] = memfd_create("spotlight", MFD_CLOEXEC);
    if (owner[1] >= 0 && ftruncate(static_cast<int>(owner[1]), static_cast<off_t>(bytes)) != 0) {
      close(static_cast<int>(owner[1]));
      owner[1] = -1;
    }
  }
  MPI_CHECK(MPI_Bcast(owner.data(), 2, MPI_INT64_T, 0, node));
  if (owner[1] < 0) return nullptr;
  const int file = rank == 0 ? static_cast<int>(owner[1])
                             : open(fmt::format("/proc/{}/fd/{}", owner[0], owner[1]).c_str(), O_RDWR | O_CLOEXEC);
  void* memory = MAP_FAILED;
  if (file >= 0) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  int mapped = memory != MAP_FAILED ? 1 : 0;
  MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, node));  // all have opened it: it may be closed
  if (file >= 0) close(file);
  if (mapped == 1) return memory;
  if (memory != MAP_FAILED) munmap(memory, bytes);
  return nullptr;
}

}  // namespace spotlight
