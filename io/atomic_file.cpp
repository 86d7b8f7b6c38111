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

[[noreturn]] void Fail(const char* what, const std::string& path, int code) {
  const char* const advice = code == ENOSPC || code == EDQUOT || code == EFBIG ? "; free some space and resume" : "";
  throw FileError(fmt::format("{}: cannot {}: {}{}", path, what, std::strerror(code), advice));
}

std::string FolderOf(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
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

void AtomicFile::Write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("write", path_, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

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
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) Fail("open", path, errno);
  const int code = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  if (code != 0 && code != EINVAL) Fail("sync", path, code);  // EINVAL: the file system has nothing to sync here
}

std::string ReadWholeFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) Fail("read", path, errno);
  std::string bytes;
  char block[1 << 16];
  ssize_t got = 0;
  while ((got = read(descriptor, block, sizeof(block))) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    bytes.append(block, static_cast<std::size_t>(got));
  }
  const int code = got < 0 ? errno : 0;
  close(descriptor);
  if (code != 0) Fail("read", path, code);
  return bytes;
}

}  // namespace spotlight
