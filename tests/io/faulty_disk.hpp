// A disk that fails or is slow, in the test program's own process: faulty_disk.cpp takes the C library's pwrite() over.
#pragma once

#include <atomic>

namespace spotlight {

struct FaultyDisk {
  std::atomic<int> error = 0;         // errno of every pwrite(); 0: it works
  std::atomic<int> milliseconds = 0;  // that every pwrite() takes longer
};

FaultyDisk& Disk();

}  // namespace spotlight
