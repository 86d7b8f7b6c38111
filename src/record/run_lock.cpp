#include "record/run_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace spotlight {
namespace {

constexpr std::chrono::seconds kDying{2};

std::string Holder() {
  char host[256] = "unknown host";
  gethostname(host, sizeof(host) - 1);
  return fmt::format("{}, process {}", host, getpid());
}

// 0, or why it cannot be had. A process that was killed keeps its locks until its memory has been freed.
int TryLock(int file) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  const auto deadline = std::chrono::steady_clock::now() + kDying;
  while (fcntl(file, F_OFD_SETLK, &lock) != 0) {
    const int code = errno;
    if ((code != EAGAIN && code != EACCES) || std::chrono::steady_clock::now() >= deadline) return code;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return 0;
}

}  // namespace

RunLock::RunLock(const std::string& directory) {
  const std::string path = directory + "/.lock";
  // Not inherited: a spot job or a judge that outlives the run must not keep the lock.
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file_ < 0) throw FileError(fmt::format("{}: cannot write: {}", path, std::strerror(errno)));
  const int code = TryLock(file_);
  if (code != 0) close(std::exchange(file_, -1));
  if (code == EAGAIN || code == EACCES) {
    std::string holder;
    std::ifstream file(path);
    std::getline(file, holder);
    throw UserError(fmt::format("a run is going on in {} ({}): stop it, or take another directory (-d DIR)", directory,
                                holder.empty() ? "not known where" : holder));
  }
  if (code != 0) {
    LogWarning(fmt::format("{}: cannot be locked ({}); take care that no other run works in this directory", path,
                           std::strerror(code)));
    return;
  }
  const std::string holder = Holder() + "\n";
  const bool named = ftruncate(file_, 0) == 0 && write(file_, holder.data(), holder.size()) > 0;
  static_cast<void>(named);  // for people only
}

RunLock::RunLock(RunLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

RunLock::~RunLock() {
  if (file_ >= 0) close(file_);
}

}  // namespace spotlight
