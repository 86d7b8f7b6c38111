#include "base/node_blob.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kPage = 4096, kLargePage = std::size_t{2} << 20;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, of Linux 6.1; older headers do not have it

struct Header {
  std::uint64_t magic, bytes, checksum;
  std::uint32_t format, key_size;
  char key[kPage - 32];
};
static_assert(sizeof(Header) == kPage);
constexpr std::uint64_t kMagic = 0x626f6c6265646f6eULL;
constexpr std::uint32_t kFormat = 1;

// Four independent chains of multiplications: as fast as memory is read.
std::uint64_t Checksum(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  std::size_t i = 0;
  for (; i + sizeof(lanes) <= bytes.size(); i += sizeof(lanes)) {
    std::uint64_t words[4];
    std::memcpy(words, bytes.data() + i, sizeof(words));
    for (int j = 0; j < 4; ++j) lanes[j] = (lanes[j] ^ words[j]) * kOdd;
  }
  for (; i < bytes.size(); ++i) lanes[0] = (lanes[0] ^ std::to_integer<std::uint64_t>(bytes[i])) * kOdd;
  std::uint64_t sum = bytes.size();
  // The upper half of a product depends on all bits; the lower ones on those below only.
  for (const std::uint64_t lane : lanes) sum = (sum ^ lane ^ (lane >> 32)) * kOdd;
  return sum;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

[[noreturn]] void Fail(const std::string& path, const std::string& what, int error) {
  throw NoSharedMemory(fmt::format("{}: {}: {}", path, what, std::strerror(error)));
}

[[noreturn]] void FailRoom(const std::string& path, std::size_t size, int error) {
  const double mebibytes = static_cast<double>(size) / (1024.0 * 1024.0);
  Fail(path, fmt::format("no room for {:.1f} MiB (a container's share grows with --shm-size)", mebibytes), error);
}

// Room for all of the file is taken now: writing beyond the room would be a SIGBUS. Shared memory gets large pages only
// where a program asks for them to be put together: from one small page each, the holes are never made.
void Reserve(const std::string& path, int file, std::byte* memory, std::size_t size) {
  const auto reserve = [&](std::size_t offset, std::size_t count) {
    int error = EINTR;
    while (error == EINTR) error = posix_fallocate(file, static_cast<off_t>(offset), static_cast<off_t>(count));
    if (error != 0) FailRoom(path, size, error);
  };
  struct statvfs folder {};  // looked at first: for a moment others would find no room either
  if (fstatvfs(file, &folder) == 0 && folder.f_bavail * folder.f_frsize < size) FailRoom(path, size, ENOSPC);
  const std::size_t large = size / kLargePage * kLargePage;
  for (std::size_t offset = 0; offset < large; offset += kLargePage) reserve(offset, kPage);
  if (large > 0) madvise(memory, large, kCollapse);  // a wish: what fails stays small
  reserve(0, size);
}

// At an address that large pages can have. file -1: memory of this process. MAP_FAILED as mmap.
void* Map(std::size_t size, int protection, int file) {
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  if (size < kLargePage) return mmap(nullptr, size, protection, flags, file, 0);
  const std::size_t reserved = size + kLargePage;
  void* start = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) return MAP_FAILED;
  auto* begin = static_cast<std::byte*>(start);
  const std::size_t before = (kLargePage - reinterpret_cast<std::uintptr_t>(begin) % kLargePage) % kLargePage;
  void* memory = mmap(begin + before, size, protection, flags | MAP_FIXED, file, 0);
  if (memory == MAP_FAILED) {
    munmap(begin, reserved);
    return MAP_FAILED;
  }
  const std::size_t end = (before + size + kPage - 1) / kPage * kPage;
  if (before > 0) munmap(begin, before);
  if (end < reserved) munmap(begin + end, reserved - end);
  if (file < 0) madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

}  // namespace

NodeBlob NodeBlob::Private(std::size_t bytes, const Fill& fill) {
  const std::size_t size = kPage + bytes;
  void* memory = Map(size, PROT_READ | PROT_WRITE, -1);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  NodeBlob blob(static_cast<std::byte*>(memory), size);
  fill(blob.bytes());
  mprotect(memory, size, PROT_READ);
  return blob;
}

NodeBlob NodeBlob::Publish(const std::string& path, const std::string& key, std::size_t bytes, const Fill& fill) {
  SPOTLIGHT_REQUIRE(key.size() <= sizeof(Header::key), key);
  const std::size_t size = kPage + bytes;
  const std::string folder = std::filesystem::path(path).parent_path();
  // Without a name until it is whole.
  const File file(open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR));
  if (file.get() < 0) Fail(folder, "no shared memory", errno);
  if (ftruncate(file.get(), static_cast<off_t>(size)) != 0) FailRoom(path, size, errno);
  void* memory = Map(size, PROT_READ | PROT_WRITE, file.get());
  if (memory == MAP_FAILED) Fail(path, "cannot be mapped", errno);
  NodeBlob blob(static_cast<std::byte*>(memory), size);
  Reserve(path, file.get(), blob.memory_, size);
  fill(blob.bytes());
  auto& header = *static_cast<Header*>(memory);
  header = {kMagic, bytes, Checksum(blob.bytes()), kFormat, static_cast<std::uint32_t>(key.size()), {}};
  std::copy(key.begin(), key.end(), header.key);
  mprotect(memory, size, PROT_READ);
  const std::string nameless = fmt::format("/proc/self/fd/{}", file.get());
  while (linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    // Filled all the same: this process uses it, and the next one fills its own.
    if (errno != EEXIST || unlink(path.c_str()) != 0) break;
  }
  return blob;
}

std::optional<NodeBlob> NodeBlob::Open(const std::string& path, const std::string& key, std::size_t bytes) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  const std::size_t size = kPage + bytes;
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || status.st_size != static_cast<off_t>(size)) return {};
  void* memory = Map(size, PROT_READ, file.get());
  if (memory == MAP_FAILED) return {};
  NodeBlob blob(static_cast<std::byte*>(memory), size);
  const auto& header = *reinterpret_cast<const Header*>(blob.memory_);
  const bool whole = header.magic == kMagic && header.format == kFormat && header.bytes == bytes &&
                     std::string_view(header.key, std::min<std::size_t>(header.key_size, sizeof(header.key))) == key;
  if (!whole) return {};
  return blob;
}

NodeBlob::~NodeBlob() {
  if (memory_ != nullptr) munmap(memory_, mapped_);
}

NodeBlob::NodeBlob(NodeBlob&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), mapped_(std::exchange(other.mapped_, 0)) {}

NodeBlob& NodeBlob::operator=(NodeBlob&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

std::span<std::byte> NodeBlob::bytes() const {
  if (memory_ == nullptr) return {};
  return {memory_ + kPage, mapped_ - kPage};
}

bool NodeBlob::Intact() const {
  if (memory_ == nullptr) return true;
  const auto& header = *reinterpret_cast<const Header*>(memory_);
  return header.magic == 0 || header.checksum == Checksum(bytes());
}

}  // namespace spotlight
