#include "base/node_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kFolder[] = "/dev/shm";
constexpr std::string_view kPrefix = "spotlight-";
constexpr std::chrono::seconds kJoinLimit{10};  // a session is removed in much less
constexpr std::chrono::milliseconds kPoll{2};

// Bytes of a session's file: 0 is locked by its users, shared, and by who removes it, alone; the others by who fills a
// blob. Two keys may meet at one byte: they then only wait for each other.
constexpr off_t kUsersByte = 0;
off_t FillByte(const std::string& key) {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  for (const char letter : key) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return 1 + static_cast<off_t>(hash);
}

// type: F_RDLCK, F_WRLCK, F_UNLCK. The lock belongs to the open file, and goes with it.
bool Lock(int file, off_t byte, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

std::string SessionPath(std::string_view session) { return fmt::format("{}/{}{}", kFolder, kPrefix, session); }

int OpenSession(const std::string& path) { return open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR); }

// The file still has the name that it was opened by.
bool HasName(int file, const std::string& path) {
  struct stat opened {
  }, named{};
  return fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

// What follows `prefix` in the names of the folder's files.
std::vector<std::string> NamesAfter(std::string_view prefix) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(kFolder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  return names;
}

// `file` is the session's. Removes it unless somebody uses it; newcomers wait in between. Blobs first: as long as there
// is one there is a session's file.
bool RemoveUnused(int file, std::string_view session) {
  const std::string path = SessionPath(session);
  if (!Lock(file, kUsersByte, F_WRLCK) || !HasName(file, path)) return false;
  for (const std::string& key : NamesAfter(fmt::format("{}{}-", kPrefix, session))) {
    unlink(fmt::format("{}-{}", path, key).c_str());
  }
  return unlink(path.c_str()) == 0;
}

bool IsName(std::string_view name, std::string_view also) {
  return !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), [&](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           also.find(letter) != std::string_view::npos;
  });
}

// The right to fill a blob.
class FillLock {
 public:
  FillLock(const std::string& session_path, const std::string& key)
      : file_(open(session_path.c_str(), O_RDWR | O_CLOEXEC)), byte_(FillByte(key)) {}
  ~FillLock() {
    if (file_ >= 0) close(file_);
  }
  FillLock(const FillLock&) = delete;
  FillLock& operator=(const FillLock&) = delete;

  bool opened() const { return file_ >= 0; }
  bool Try() const { return Lock(file_, byte_, F_WRLCK); }

 private:
  int file_;
  off_t byte_;
};

}  // namespace

NodeMemory::NodeMemory(std::string session, std::chrono::milliseconds wait_limit)
    : session_(std::move(session)), wait_limit_(wait_limit) {
  if (session_.empty()) return;
  SPOTLIGHT_REQUIRE(IsName(session_, "_."), "session = " + session_);
  if (!Join()) WarnOnce(fmt::format("{}: {}", SessionPath(session_), std::strerror(errno)));
}

// Sets errno where it fails.
bool NodeMemory::Join() {
  const std::string path = SessionPath(session_);
  const auto deadline = Clock::now() + kJoinLimit;
  do {
    const int file = OpenSession(path);
    if (file < 0) return false;
    // While the last user removes the session it is locked, and then another file.
    if (Lock(file, kUsersByte, F_RDLCK) && HasName(file, path)) {
      users_ = file;
      return true;
    }
    close(file);
    std::this_thread::sleep_for(kPoll);
  } while (Clock::now() < deadline);
  errno = ETIMEDOUT;
  return false;
}

NodeMemory::~NodeMemory() {
  if (!shared()) return;
  // In this order the last one of any that leave together finds no other.
  Lock(users_, kUsersByte, F_UNLCK);
  RemoveUnused(users_, session_);
  close(users_);
}

std::string NodeMemory::PathOf(const std::string& key) const {
  SPOTLIGHT_REQUIRE(IsName(key, "_.-"), "key = " + key);
  return fmt::format("{}-{}", SessionPath(session_), key);
}

void NodeMemory::WarnOnce(const std::string& text) {
  if (std::exchange(warned_, true)) return;
  LogWarning(fmt::format("{}; this rank keeps a copy of its own instead of sharing its node's", text));
}

NodeBlob NodeMemory::Get(const std::string& key, std::size_t bytes, const NodeBlob::Fill& fill) {
  SPOTLIGHT_REQUIRE(bytes > 0, "key = " + key);
  const std::string path = PathOf(key);
  if (!shared()) return NodeBlob::Private(bytes, fill);
  try {
    const FillLock lock(SessionPath(session_), key);
    if (!lock.opened()) throw NoSharedMemory(SessionPath(session_) + " is gone: the session's names were removed");
    const auto deadline = Clock::now() + wait_limit_;
    while (true) {
      // First: who filled it may have let go just now.
      const bool mine = lock.Try();
      if (std::optional<NodeBlob> blob = NodeBlob::Open(path, key, bytes)) return std::move(*blob);
      if (mine) return NodeBlob::Publish(path, key, bytes, fill);
      if (Clock::now() >= deadline) {
        throw NoSharedMemory(fmt::format("{}: a neighbour has been filling it for {} s", path,
                                         std::chrono::duration_cast<std::chrono::seconds>(wait_limit_).count()));
      }
      std::this_thread::sleep_for(kPoll);
    }
  } catch (const NoSharedMemory& error) {
    WarnOnce(error.what());
  }
  return NodeBlob::Private(bytes, fill);  // not under the lock: nobody waits for this one
}

bool NodeMemory::Has(const std::string& key) const { return shared() && access(PathOf(key).c_str(), R_OK) == 0; }

void NodeMemory::Drop(const std::string& key) const {
  if (shared()) unlink(PathOf(key).c_str());
}

std::vector<std::string> NodeMemory::Keys() const {
  return shared() ? NamesAfter(fmt::format("{}{}-", kPrefix, session_)) : std::vector<std::string>();
}

int NodeMemory::RemoveLeftovers() {
  std::set<std::string> sessions;
  for (const std::string& name : NamesAfter(kPrefix)) sessions.insert(name.substr(0, name.find('-')));
  int removed = 0;
  for (const std::string& session : sessions) {
    const int file = OpenSession(SessionPath(session));  // made where only blobs are left
    if (file < 0) continue;                              // another user's
    removed += RemoveUnused(file, session) ? 1 : 0;
    close(file);
  }
  return removed;
}

}  // namespace spotlight
