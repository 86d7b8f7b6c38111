#include "faulty_disk.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace spotlight {

FaultyDisk& Disk() {
  static FaultyDisk disk;
  return disk;
}

}  // namespace spotlight

// The program's own definition goes before the C library's.
extern "C" ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  const spotlight::FaultyDisk& disk = spotlight::Disk();
  if (disk.milliseconds > 0) std::this_thread::sleep_for(std::chrono::milliseconds(disk.milliseconds));
  if (disk.error != 0) {
    errno = disk.error;
    return -1;
  }
  return syscall(SYS_pwrite64, descriptor, bytes, count, offset);
}
