// Memory that all ranks of a run on one node share: named blobs in POSIX shared memory, filled once and read-only from
// then on. So a node holds its weights once, and a newcomer maps them instead of loading them.
//
//   NodeMemory node(session);                               // "" : memory of this process alone, same calls
//   NodeBlob blob = node.Get("base-bf16", bytes, fill);     // maps what a neighbour has, else fills it
//
// Files: /dev/shm/spotlight-<session> is the session; its byte-range locks say who uses the session and who is filling
// which blob, and die with their owner. /dev/shm/spotlight-<session>-<key> is a blob. A blob gets its name only when it
// is whole (base/node_blob.hpp), so a kill at any instant leaves no half-filled memory to be found. A rank that dies
// while it fills lets a waiting neighbour take over.
//
// Names go when the last user leaves; what killed users left is removed by RemoveLeftovers. The memory of a blob is
// freed when it has no name and no process maps it.
//
// Shared memory that is missing, too small or unusable never ends a run: the rank keeps a copy of its own, and one
// warning says so. Not for several threads at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "base/node_blob.hpp"

namespace spotlight {

class NodeMemory {
 public:
  // session: letters, digits, '_' and '.'; the same for all ranks of a run on this node, and unique to the run there.
  // wait_limit: how long Get waits for a neighbour that is filling a blob before it makes a copy of its own.
  explicit NodeMemory(std::string session = "", std::chrono::milliseconds wait_limit = std::chrono::minutes(10));
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  bool shared() const { return users_ >= 0; }

  // The blob `key` (letters, digits, '_', '.' and '-') of `bytes` > 0. `fill` is called, by one rank of the node, if no
  // blob of this key and size is there; it must not wait for other ranks of the node, which may be waiting for it. What
  // it throws is passed on, and nothing is kept of its blob. The blob may outlive this object.
  NodeBlob Get(const std::string& key, std::size_t bytes, const NodeBlob::Fill& fill);

  bool Has(const std::string& key) const;
  // The names go, the memory with its last user. Of blobs that are not there: nothing.
  void Drop(const std::string& key) const;
  // Of all blobs that have a name. In no order.
  std::vector<std::string> Keys() const;

  // Removes the names of all sessions that nobody uses any more, where this user may. Returns their number.
  static int RemoveLeftovers();

 private:
  bool Join();
  std::string PathOf(const std::string& key) const;
  void WarnOnce(const std::string& text);

  std::string session_;
  std::chrono::milliseconds wait_limit_;
  int users_ = -1;  // the session's file, with a share of its users' lock; -1: not shared
  bool warned_ = false;
};

}  // namespace spotlight
