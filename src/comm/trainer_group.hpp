// The trainers' collectives over host memory, deterministic: the same bits on every trainer.
//
// All trainers make the same calls in the same order. Every wait has the world's limit; a lost trainer throws PeerLost
// on all others (the one that leaves by an exception revokes the communicator). With one trainer nothing is sent.
#pragma once

#include <span>

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
  // The same length on all. Moves 2 x the array per trainer, in pieces of 4 MiB.
  void SumInOrder(std::span<float> values);
  // values of trainer `root` on all.
  void Broadcast(std::span<float> values, int root = 0);
  double SumDouble(double value);  // in the order of the index
  double MaxDouble(double value);  // NaN if any is NaN

 private:
  World& world_;
  int exceptions_;  // in flight when this was made
};

}  // namespace spotlight
