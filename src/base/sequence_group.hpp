// The ranks that run one pass of the transformer together, each with a share of its tokens (Ulysses sequence
// parallelism, arXiv 2309.14509). The model needs one exchange of them; src/comm/sp_group carries it.
#pragma once

#include <span>

#include "base/tensor.hpp"

namespace spotlight {

class SequenceGroup {
 public:
  virtual ~SequenceGroup() = default;

  virtual int size() const = 0;   // P, the degree
  virtual int index() const = 0;  // 0 .. P - 1

  // Collective. Sends send_bytes[p] bytes to rank p, taken from `send` in rank order without gaps, and receives
  // receive_bytes[p] bytes of rank p into `receive`, likewise. They may be 0; both sides agree on them. Host memory.
  // Throws PeerLost if a rank is gone.
  virtual void AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                        std::span<const Index> receive_bytes) = 0;

  // Collective. The same on memory of a GPU, between its launches. False, on all: this group has no way to do so, and
  // nothing was sent.
  virtual bool AllToAllOnDevice(const void* /*send*/, std::span<const Index> /*send_bytes*/, void* /*receive*/,
                                std::span<const Index> /*receive_bytes*/) {
    return false;
  }
};

// What rank `index` of `count` owns of `size` things in order: [begin, end). Sizes differ by one at most.
struct ShareRange {
  Index begin = 0, end = 0;
  Index size() const { return end - begin; }
};
inline ShareRange ShareOf(Index size, int index, int count) {
  return {size * index / count, size * (index + 1) / count};
}

}  // namespace spotlight
