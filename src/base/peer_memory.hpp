// Memory of one process that others of its node write into: windows, and flags that say when. Operations run one after
// the other in the order of the calls, after the call has returned or before; only waiting for a flag waits for another
// process, and nothing here blocks. Two implementations: src/comm/host_peer_memory for the host's memory, and
// kernels/cuda/peer_memory.cpp for a GPU's.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace spotlight {

class PeerMemory {
 public:
  // By which another process of the node finds a window.
  using Handle = std::array<std::byte, 128>;
  // In host memory that all processes of the node share; starts as 0, and only grows but for Release of PeerWindows.
  using Flag = std::atomic<std::uint64_t>;

  virtual ~PeerMemory() = default;  // when Done, or when nobody else lives

  // Where the flags are; before any other call. Throws UserError if it cannot work with them.
  virtual void UseFlags(void* memory, std::size_t bytes) = 0;
  // Makes this process' window. UserError: there is no memory for it.
  virtual Handle MakeWindow(std::size_t bytes) = 0;
  // Makes the window of process `peer` reachable by Push. False: it cannot be reached from here.
  virtual bool OpenWindow(int peer, const Handle& handle) = 0;

  // Operations. Push writes into an open window, Take reads the own one.
  virtual void Push(int peer, std::size_t offset, const void* from, std::size_t bytes) = 0;
  virtual void Take(std::size_t offset, void* to, std::size_t bytes) = 0;
  virtual void Copy(const void* from, void* to, std::size_t bytes) = 0;
  // Whoever sees the value sees what was pushed before.
  virtual void Raise(Flag& flag, std::uint64_t value) = 0;
  virtual void Await(const Flag& flag, std::uint64_t value) = 0;  // or a larger one

  // Whether all operations are complete. Has to be called for them to go on.
  virtual bool Done() = 0;
};

// The function that a plug-in exports, under the name kPeerMemoryEntry. UserError: the GPU cannot do it.
using PeerMemoryEntry = void (*)(std::unique_ptr<PeerMemory>& memory);
inline constexpr const char* kPeerMemoryEntry = "SpotlightPeerMemory";

}  // namespace spotlight
