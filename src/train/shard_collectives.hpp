// The trainers' sums and gathers over kernel memory that the host cannot read: comm/trainer_group.hpp's, with the same
// bits, by messages between the GPUs. Arrays move in pieces, and the sum of one piece runs beside the exchange of the
// next.
//
// All trainers make the same calls in the same order. PeerLost if one is gone.
#pragma once

#include <cstddef>

#include "base/bfloat16.hpp"
#include "base/tensor.hpp"
#include "comm/device_communicator.hpp"
#include "kernels/buffer.hpp"

namespace spotlight {

class ShardCollectives {
 public:
  static constexpr std::size_t kScratch = std::size_t{128} << 20;  // bytes, of kernel memory

  explicit ShardCollectives(DeviceCommunicator& device, std::size_t most_scratch = kScratch)
      : device_(device), most_scratch_(most_scratch) {}

  // Values of the own shard become the sum over the trainers, added in double in the order of their index and rounded
  // once. Moves (n - 1) / n of the array.
  void SumShardInOrder(float* values, Index size);
  // Every trainer's shard on all. Moves (n - 1) / n of the array.
  void GatherShards(float* values, Index size);
  void GatherShards(Bfloat16* values, Index size);
  // `values` of trainer `root` on all.
  void Broadcast(float* values, Index size, int root = 0);

 private:
  template <typename T>
  void Gather(T* values, Index size);

  DeviceCommunicator& device_;
  std::size_t most_scratch_;
  Buffer parts_;  // of two pieces of the own shard, by trainer
};

}  // namespace spotlight
