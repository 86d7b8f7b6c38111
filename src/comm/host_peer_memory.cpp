#include "comm/host_peer_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace spotlight {
namespace {

struct Place {
  std::int64_t process = 0, file = 0;
  std::uint64_t bytes = 0;
};

std::byte* Map(int file, std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

HostPeerMemory::~HostPeerMemory() {
  for (const auto& [peer, window] : peers_) munmap(window.memory, window.bytes);
  if (own_.memory != nullptr) munmap(own_.memory, own_.bytes);
  if (file_ >= 0) close(file_);
}

PeerMemory::Handle HostPeerMemory::MakeWindow(std::size_t bytes) {
  SPOTLIGHT_REQUIRE(file_ < 0, "one window");
  file_ = memfd_create("spotlight", MFD_CLOEXEC);
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes)) == 0) own_ = {Map(file_, bytes), bytes};
  if (own_.memory == nullptr) throw UserError(fmt::format("no shared memory: {}", std::strerror(errno)));
  const Place place{getpid(), file_, bytes};
  Handle handle{};
  static_assert(sizeof(place) <= sizeof(handle));
  std::memcpy(handle.data(), &place, sizeof(place));
  return handle;
}

bool HostPeerMemory::OpenWindow(int peer, const Handle& handle) {
  if (peers_.contains(peer)) return true;
  Place place;
  std::memcpy(&place, handle.data(), sizeof(place));
  const int file = open(fmt::format("/proc/{}/fd/{}", place.process, place.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  const Window window{Map(file, place.bytes), place.bytes};
  close(file);
  if (window.memory == nullptr) return false;
  peers_[peer] = window;
  return true;
}

void HostPeerMemory::Push(int peer, std::size_t offset, const void* from, std::size_t bytes) {
  const Window& window = peers_.at(peer);
  SPOTLIGHT_REQUIRE(offset + bytes <= window.bytes, "beyond the window");
  Enqueue({.from = from, .to = window.memory + offset, .bytes = bytes});
}

void HostPeerMemory::Take(std::size_t offset, void* to, std::size_t bytes) {
  SPOTLIGHT_REQUIRE(offset + bytes <= own_.bytes, "beyond the window");
  Enqueue({.from = own_.memory + offset, .to = to, .bytes = bytes});
}

void HostPeerMemory::Copy(const void* from, void* to, std::size_t bytes) {
  Enqueue({.from = from, .to = to, .bytes = bytes});
}

void HostPeerMemory::Raise(Flag& flag, std::uint64_t value) { Enqueue({.raise = &flag, .value = value}); }

void HostPeerMemory::Await(const Flag& flag, std::uint64_t value) { Enqueue({.await = &flag, .value = value}); }

bool HostPeerMemory::Run(const Operation& operation) {
  if (operation.await != nullptr) return operation.await->load(std::memory_order_acquire) >= operation.value;
  if (operation.raise != nullptr) {
    operation.raise->store(operation.value, std::memory_order_release);
  } else {
    std::memcpy(operation.to, operation.from, operation.bytes);
  }
  return true;
}

void HostPeerMemory::Enqueue(const Operation& operation) {
  if (!Done() || !Run(operation)) waiting_.push_back(operation);
}

bool HostPeerMemory::Done() {
  while (!waiting_.empty() && Run(waiting_.front())) waiting_.pop_front();
  return waiting_.empty();
}

}  // namespace spotlight
