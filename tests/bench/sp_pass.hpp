// One block of Qwen-Image's real size at 512 px, run by a sequence-parallel group: the work that bench_sp times.
//
// d 3072, 24 heads x 128, batch 1, fp32, random weights, LoRA of rank 16 on the block's twelve linear layers, frozen
// base. A model of one layer, text output included. Every rank makes the same weights.
#pragma once

#include <memory>
#include <string>

#include "base/sequence_group.hpp"
#include "model/dit.hpp"
#include "model/weight_storage.hpp"
#include "tests/bench/timing.hpp"

namespace spotlight {

// A group that keeps the time spent in its exchanges, waiting for the others included.
class TimedGroup : public SequenceGroup {
 public:
  explicit TimedGroup(SequenceGroup& group) : group_(group) {}

  int size() const override { return group_.size(); }
  int index() const override { return group_.index(); }
  void AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                std::span<const Index> receive_bytes) override {
    const Seconds start = Now();
    group_.AllToAll(send, send_bytes, receive, receive_bytes);
    const Seconds time = Now() - start;
    spent.wall += time.wall;
    spent.cpu += time.cpu;
  }

  Seconds spent;

 private:
  SequenceGroup& group_;
};

class SpPass {
 public:
  static constexpr Index kSide = 32, kTextTokens = 64;

  SpPass();

  // This rank's share of a forward pass, and of a forward and backward pass with gradients of the adapters.
  void Forward(SequenceGroup& group);
  void ForwardBackward(SequenceGroup& group);
  // A forward pass of this rank alone over an image of `rows` x kSide tokens and `text` tokens.
  void ForwardOf(Index rows, Index text);

  // What the last pass left, as bytes: this rank's rows of the velocity, and its part of the gradient (zero elsewhere).
  std::string Velocity() const;
  std::string Gradient() const;

 private:
  DitInput InputOf(SequenceGroup* group) const;

  std::shared_ptr<const DitLayout> layout_;
  Buffer weights_, adapter_, gradient_, image_, text_, dvelocity_, velocity_;
  FlatParameters forward_, both_;
  Dit dit_;
};

}  // namespace spotlight
