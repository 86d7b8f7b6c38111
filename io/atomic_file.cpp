#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

// Closes an open file on any way out.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  operator int() const { return number_; }  // NOLINT: passes as the number that it is

 private:
  int number_;
};

[[noreturn]] void Fail(const char* what, const std::string& path, int code) {
  const char* const advice = code == ENOSPC || code == EDQUOT || code == EFBIG ? "; free some space and resume" : "";
  throw FileError(fmt::format("{}: cannot {}: {}{}", path, what, std::strerror(code), advice));
}

std::string FolderOf(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

void WriteAll(int descriptor, const std::string& path, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("write", path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Hands the file to `take`, block by block.
template <typename Take>
void ReadBlocks(const std::string& path, const Take& take) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor < 0) Fail("read", path, errno);
  std::string block(1 << 20, '\0');
  while (true) {
    const ssize_t got = read(descriptor, block.data(), block.size());
    if (got == 0) return;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) Fail("read", path, errno);
    take(std::string_view(block.data(), static_cast<std::size_t>(got)));
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), aside_(AsidePath(path)) {
  descriptor_ = open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) Fail("write", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(aside_.c_str());
}

void AtomicFile::Write(std::string_view bytes) { WriteAll(descriptor_, path_, bytes); }

void AtomicFile::Commit() {
  // close() may be the first to report a full quota on a network file system.
  const int closed = close(descriptor_);
  const int code = errno;
  descriptor_ = -1;
  if (closed != 0) {
    unlink(aside_.c_str());
    Fail("write", path_, code);
  }
  CommitAside(aside_, path_);
}

void WriteFileAtomically(const std::string& path, std::string_view bytes) {
  AtomicFile file(path);
  file.Write(bytes);
  file.Commit();
}

std::string AsidePath(const std::string& path) {
  const fs::path p(path);
  return (p.parent_path() / fmt::format(".{}.partial", p.filename().string())).string();
}

std::string CopyAside(const std::string& path) {
  std::string aside = AsidePath(path);
  const Descriptor descriptor(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (descriptor < 0) Fail("write", path, errno);
  try {
    ReadBlocks(path, [&](std::string_view block) { WriteAll(descriptor, path, block); });
  } catch (const FileError&) {
    unlink(aside.c_str());
    throw;
  }
  return aside;
}

void CommitAside(const std::string& aside, const std::string& path) {
  try {
    SyncPath(aside);
    if (std::rename(aside.c_str(), path.c_str()) != 0) Fail("replace", path, errno);
  } catch (const FileError&) {
    unlink(aside.c_str());
    throw;
  }
  SyncPath(FolderOf(path));
}

void SyncPath(const std::string& path) {
  const Descriptor descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (descriptor < 0) Fail("open", path, errno);
  // EINVAL: the file system has nothing to sync here.
  if (fsync(descriptor) != 0 && errno != EINVAL) Fail("sync", path, errno);
}

std::string ReadWholeFile(const std::string& path) {
  std::string bytes;
  ReadBlocks(path, [&bytes](std::string_view block) { bytes += block; });
  return bytes;
}

}  // namespace spotlight
