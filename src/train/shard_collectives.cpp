#include "train/shard_collectives.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/sequence_group.hpp"
#include "kernels/memory.hpp"
#include "kernels/optimizer.hpp"

namespace spotlight {
namespace {

constexpr Index kFloats = 4;  // of the 16 bytes that a kernel takes at once

// Piece `round` of what trainer `index` owns when each round takes `most` elements of every shard; may be empty.
ShareRange Piece(Index size, int index, int count, Index round, Index most) {
  const ShareRange shard = ShareOf(size, index, count);
  const Index begin = std::min(shard.end, shard.begin + round * most);
  return {begin, std::min(shard.end, begin + most)};
}

}  // namespace

void ShardCollectives::SumShardInOrder(float* values, Index size) {
  const int n = device_.size(), own = device_.index();
  void* const queue = LaunchQueue();
  const Index longest = (size + n - 1) / n;
  const Index in_scratch = static_cast<Index>(most_scratch_ / sizeof(float)) / (2 * n) - 2 * kFloats;
  // A multiple of kFloats: then each piece begins as far from a 16-byte border as the shard.
  const Index most = std::max(kFloats, std::min(longest + kFloats - 1, in_scratch) / kFloats * kFloats);
  const Index stride = most + kFloats, rounds = (longest + most - 1) / most;
  parts_.Resize(2 * n * stride);
  const float* const shard = values + ShareOf(size, own, n).begin;
  const Index shift = static_cast<Index>(reinterpret_cast<std::uintptr_t>(shard) / sizeof(float)) % kFloats;
  const auto parts_of = [&](Index round) { return parts_.data() + round % 2 * n * stride + shift; };

  std::vector<PeerBytes> peers(static_cast<std::size_t>(n));
  const auto start = [&](Index round) {
    const ShareRange mine = Piece(size, own, n, round, most);
    for (int p = 0; p < n; ++p) {
      const ShareRange theirs = Piece(size, p, n, round, most);
      peers[static_cast<std::size_t>(p)] = {
          values + theirs.begin, static_cast<std::size_t>(theirs.size()) * sizeof(float), parts_of(round) + p * stride,
          static_cast<std::size_t>(mine.size()) * sizeof(float)};
    }
    device_.StartExchange(peers, queue);
  };
  if (rounds > 0) start(0);
  for (Index round = 0; round < rounds; ++round) {
    device_.Follow(queue);
    if (round + 1 == rounds) device_.Wait();
    // Its parts go where those of the round before the last one were, whose sum was launched before.
    if (round + 1 < rounds) start(round + 1);
    const ShareRange mine = Piece(size, own, n, round, most);
    SumInOrder(mine.size(), n, own, parts_of(round), stride, values + mine.begin);
  }
}

template <typename T>
void ShardCollectives::Gather(T* values, Index size) {
  const int n = device_.size(), own = device_.index();
  if (size == 0) return;
  if (size % n == 0) {
    device_.StartGather(values, static_cast<std::size_t>(size / n) * sizeof(T), LaunchQueue());
  } else {
    const ShareRange mine = ShareOf(size, own, n);
    std::vector<PeerBytes> peers;
    for (int p = 0; p < n; ++p) {
      const ShareRange theirs = ShareOf(size, p, n);
      peers.push_back({values + mine.begin, static_cast<std::size_t>(mine.size()) * sizeof(T), values + theirs.begin,
                       static_cast<std::size_t>(theirs.size()) * sizeof(T)});
    }
    device_.StartExchange(peers, LaunchQueue());
  }
  device_.Follow(LaunchQueue());
  device_.Wait();
}

void ShardCollectives::GatherShards(float* values, Index size) { Gather(values, size); }
void ShardCollectives::GatherShards(Bfloat16* values, Index size) { Gather(values, size); }

void ShardCollectives::Broadcast(float* values, Index size, int root) {
  if (size == 0) return;
  device_.StartBroadcast(values, static_cast<std::size_t>(size) * sizeof(float), root, LaunchQueue());
  device_.Follow(LaunchQueue());
  device_.Wait();
}

}  // namespace spotlight
