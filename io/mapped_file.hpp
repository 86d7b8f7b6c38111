// A whole file mapped read-only. Private to io/.
//
// UserError if the file is missing (with the nearest name in its folder) or is not a regular file; FileError if the
// system cannot map it. The file must not shrink while it is mapped.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace spotlight {

class MappedFile {
 public:
  MappedFile() = default;  // of no bytes
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {begin_, size_}; }

  // Takes the whole pages within `range` out of this process's memory; the next access reads them again.
  // `range` outside the map is left alone.
  void Release(std::span<const std::byte> range) const;

 private:
  const std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace spotlight
