#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "io/missing_file.hpp"

namespace spotlight {

MappedFile::MappedFile(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw UserError(errno == ENOENT ? MissingFileMessage(path)
                                    : fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  }
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* map = MAP_FAILED;
  if (regular && size > 0) map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int code = errno;
  close(descriptor);
  if (!regular) throw UserError(path + ": not a file");
  if (size == 0) return;
  if (map == MAP_FAILED) throw FileError(fmt::format("{}: cannot map: {}", path, std::strerror(code)));
  begin_ = static_cast<const std::byte*>(map);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (begin_ != nullptr) munmap(const_cast<std::byte*>(begin_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::Release(std::span<const std::byte> range) const {
  if (begin_ == nullptr || range.data() < begin_ || range.data() + range.size() > begin_ + size_) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(range.data() - begin_);  // the map itself starts on a page
  const std::size_t first = (offset + page - 1) / page * page;
  const std::size_t end = (offset + range.size()) / page * page;
  if (first < end) madvise(const_cast<std::byte*>(begin_) + first, end - first, MADV_DONTNEED);
}

}  // namespace spotlight
