// One piece of memory that is written once, by its maker, and read-only from then on: the process's own, or a file in
// shared memory that neighbours map too. See base/node_memory.hpp, which names and locks them.
//
// Memory: a header of one page (magic number, format, size, key, checksum of the contents), then the contents. Both are
// asked for in large pages (2 MiB): files in shared memory get them from Linux 6.1 on, whatever the system's defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace spotlight {

// Shared memory cannot be had: no room, no support. what() names the path and the cause.
class NoSharedMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class NodeBlob {
 public:
  // Writes all of the contents; they are zero before.
  using Fill = std::function<void(std::span<std::byte>)>;

  // Memory of this process alone. Throws std::bad_alloc.
  static NodeBlob Private(std::size_t bytes, const Fill& fill);
  // A new blob, which gets the name `path` once it is whole; a process that dies before leaves nothing. An older file
  // of that name goes. Throws NoSharedMemory, before any call of `fill` where the memory is the reason.
  static NodeBlob Publish(const std::string& path, const std::string& key, std::size_t bytes, const Fill& fill);
  // Maps the blob at `path`; nothing if there is none, or if its header is not that of `key` and `bytes`.
  static std::optional<NodeBlob> Open(const std::string& path, const std::string& key, std::size_t bytes);

  NodeBlob() = default;
  ~NodeBlob();
  NodeBlob(NodeBlob&& other) noexcept;
  NodeBlob& operator=(NodeBlob&& other) noexcept;

  // Page-aligned. Whoever writes here is ended by the system (SIGSEGV).
  std::span<std::byte> bytes() const;
  // The contents still have the checksum that they were published with. Reads all of them. The process's own memory has
  // none, and is always right.
  bool Intact() const;

 private:
  NodeBlob(std::byte* memory, std::size_t mapped) : memory_(memory), mapped_(mapped) {}

  std::byte* memory_ = nullptr;  // begins with the header
  std::size_t mapped_ = 0;
};

}  // namespace spotlight
