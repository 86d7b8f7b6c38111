// Launches that are made again and again, by key: called where a back end gains nothing from a recording
// (kernels/stream.hpp), else called once, recorded at the second time, and replayed from then on.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "kernels/stream.hpp"

namespace spotlight {

class Recordings {
 public:
  // Everything that the launches' arguments depend on: shapes, numbers, and addresses of memory other than Buffers
  // which stay where they are. When memory is freed that a recording may use, all recordings are made anew.
  using Key = std::vector<std::int64_t>;

  // most: keys that are kept, those used last.
  explicit Recordings(std::size_t most = 8) : most_(most) {}

  // `launches` must leave nothing on the host that later code reads: in a replay it is not called. The first call makes
  // what memory, plans and libraries it needs; the second finds them.
  void Run(const Key& key, const std::function<void()>& launches);

  // For tests.
  std::uint64_t replayed() const { return replayed_; }

 private:
  struct Entry {
    Key key;
    std::unique_ptr<LaunchGraph> graph;  // null: called once
  };
  std::size_t most_;
  std::uint64_t generation_ = 0;
  std::list<Entry> entries_;  // the last used first
  std::uint64_t replayed_ = 0;
};

// For dispatch.cpp: memory that the active back end has handed out, and memory that it will get back.
void NoteAllocated(const void* memory);
void NoteFreed(const void* memory);

}  // namespace spotlight
