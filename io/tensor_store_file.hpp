// One file of the tensor store (io/tensor_store_format.hpp): slots of requests, each with its last two commits.
//
// A commit writes the rows that are not yet in the file, none of which its predecessor uses, and then its record over
// the one before the predecessor's. So a kill at any instant leaves the predecessor or the new commit, whole. Nothing
// is synced: what write() has taken survives a kill; if the machine loses power, the checksums tell what is whole.
// Where the file system fails: FileError with the path and the system's reason; the slot is as before and can be
// written again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor_store_format.hpp"

namespace spotlight {

class TensorStoreFile {
 public:
  // Writes an empty file aside and renames it to `path`; makes the folder if it is not there. `format` must outlive it.
  static std::shared_ptr<TensorStoreFile> Create(const std::string& path, const TensorStoreFormat& format);
  // Opens a file and verifies every checksum in it. What is damaged is told in `problems`, in one line each with the
  // file, the request and what is used instead. Null if the file is of no use; it stays as it is.
  static std::shared_ptr<TensorStoreFile> Open(const std::string& path, const TensorStoreFormat& format,
                                               std::vector<std::string>& problems);
  ~TensorStoreFile();
  TensorStoreFile(const TensorStoreFile&) = delete;
  TensorStoreFile& operator=(const TensorStoreFile&) = delete;

  const std::string& Path() const { return path_; }
  // A slot that was never written; none if all were given away.
  std::optional<std::size_t> TakeSlot();
  std::size_t SlotsTaken() const { return taken_; }
  // The newest whole commit, without latents; none if there is none.
  const std::optional<CommitRecord>& Newest(std::size_t slot) const { return newest_[slot]; }

  // Returns the bytes written; none, with nothing changed, if the commit has other latents than the slot has for the
  // same step: they belong in a slot of their own. Once a sample is written, the newest latents give their room back.
  std::optional<std::size_t> Write(std::size_t slot, const Commit& commit, std::uint64_t sequence);
  // The newest whole commit with its latents, every checksum verified. If one is wrong, the commit before is taken for
  // good, and `problems` tells.
  std::optional<Commit> Read(std::size_t slot, std::vector<std::string>& problems);

 private:
  TensorStoreFile(const std::string& path, int descriptor, const TensorStoreFormat& format);
  std::optional<Commit> ReadCommit(std::size_t slot, const CommitRecord& record) const;

  const std::string path_;
  const int descriptor_;
  const TensorStoreFormat& format_;
  std::size_t taken_ = 0;
  std::vector<std::optional<CommitRecord>> newest_;  // [slots]
};

// "rollout of prompt 3, seed 17, iteration 5", for messages.
std::string RequestName(const Request& request);

}  // namespace spotlight
