// The right to work in a run directory: one run at a time.
//
// A lock on DIR/.lock, which names its holder and ends with its process, however that ends. Where the file system has
// no locks, a warning asks the user to take care.
#pragma once

#include <string>

namespace spotlight {

class RunLock {
 public:
  // UserError: a run is going on in the directory, on this or another node. FileError: the file cannot be written.
  explicit RunLock(const std::string& directory);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_ = -1;
};

}  // namespace spotlight
