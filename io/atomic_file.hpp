// Files that are replaced whole or not at all: written aside (".<name>.partial" in the same folder), synced, renamed.
//
// Any failure is a FileError that names the path and the system's reason; the aside file is removed and the old file is
// as it was. A kill leaves at most the aside file, which the next write replaces.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace spotlight {

class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // drops the aside file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(std::string_view bytes);
  void Commit();  // sync, rename, sync the folder

 private:
  std::string path_;
  std::string aside_;
  int descriptor_ = -1;
};

void WriteFileAtomically(const std::string& path, std::string_view bytes);

// Where AtomicFile keeps the unfinished `path`; for writers (HDF5) that need a file name instead of bytes.
std::string AsidePath(const std::string& path);
// Copies the file to its aside path, to be changed there; returns that path.
std::string CopyAside(const std::string& path);
// Syncs the finished file at `aside`, renames it to `path`, syncs the folder.
void CommitAside(const std::string& aside, const std::string& path);

// fsync of a file or a folder.
void SyncPath(const std::string& path);

// The whole file as bytes; FileError if it cannot be read.
std::string ReadWholeFile(const std::string& path);

}  // namespace spotlight
