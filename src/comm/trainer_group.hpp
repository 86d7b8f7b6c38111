// The trainers' collectives over host memory, deterministic: the same bits on every trainer.
//
// All trainers make the same calls in the same order. Every wait has the world's limit; a lost trainer throws PeerLost
// on all others (the one that leaves by an exception revokes the communicator). With one trainer nothing is sent.
//
// A shard is what one trainer owns of an array: ShareOf(size, index, trainers) of base/sequence_group.hpp. Arrays have
// the same length on all and may be larger than any int; they move in pieces of 4 MiB.
//
// Memory of GPUs goes by device(), where the trainers' GPUs could be connected.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bfloat16.hpp"
#include "comm/device_communicator.hpp"
#include "comm/world.hpp"

namespace spotlight {

class TrainerGroup {
 public:
  // After World::AssignRoles, on trainers (or the one process that plays all roles). Not collective.
  explicit TrainerGroup(World& world);
  ~TrainerGroup();
  TrainerGroup(const TrainerGroup&) = delete;
  TrainerGroup& operator=(const TrainerGroup&) = delete;

  int size() const { return world_.trainers(); }
  int index() const { return world_.trainer_index(); }

  // values[i] becomes the sum over the trainers, added in double in the order of their index and rounded once.
  // Moves 2 (n - 1) / n of the array per trainer.
  void SumInOrder(std::span<float> values);
  // The same for the own shard only; the rest stays as it was. Moves (n - 1) / n of the array.
  void SumShardInOrder(std::span<float> values);
  // Every trainer's shard on all. Moves (n - 1) / n of the array.
  void GatherShards(std::span<float> values);
  void GatherShards(std::span<Bfloat16> values);
  // values of trainer `root` on all.
  void Broadcast(std::span<float> values, int root = 0);
  double SumDouble(double value);  // in the order of the index
  double MaxDouble(double value);  // NaN if any is NaN
  // Everybody's text in the order of the index.
  std::vector<std::string> AllGather(const std::string& text);

  // Not collective. Throws PeerLost if a trainer is gone, be it that nobody has waited for it yet.
  void LookAtPeers() const;

  // Collective: makes device() (ConnectDevices), in place of the one before, which nobody may use any more. Returns why
  // there is none; empty: there is.
  std::string Connect(const DeviceConnector* connector);
  // The same for the memory of the trainers' GPUs. Null: it has to go through the host's.
  DeviceCommunicator* device() const { return device_.get(); }

  std::chrono::milliseconds limit() const { return world_.limit_; }
  const std::string& host() const { return world_.host(); }

 private:
  World& world_;
  int exceptions_;  // in flight when this was made
  std::unique_ptr<DeviceCommunicator> device_;
};

}  // namespace spotlight
