// Weights over the control plane in pieces: a LoRA adapter has up to 2 GB, a whole model 41 GB and more, but one
// message must travel within kSilenceLimit (channel.hpp), and other workers' calls wait behind it. A checksum of the
// whole array goes with every piece; its receiver checks the sum once it has all.
//
// What does not fit together throws MessageError, which names the version and both figures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "comm/messages.hpp"

namespace spotlight {

// 16 MiB: fast enough over a link of 2 MB/s, and no slower over a fast one than larger pieces.
inline constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 22;

// Sends a message to the coordinator and returns its reply.
using MessageCall = std::function<Message(const Message&)>;

// Worker: the weights of `version` into `out`, whose size is the number of trained parameters. piece >= 1.
void FetchInPieces(const MessageCall& call, std::uint64_t version, bool ema, std::span<float> out,
                   std::uint64_t piece = kPieceValues);

// Coordinator: the reply to `fetch`, given all values of that version and their Checksum (made once per version).
Weights PieceOf(const FetchWeights& fetch, std::span<const float> values, std::uint64_t checksum);

// Trainer: hands `values` over as the weights of `version`. One trainer calls it, before Trained. piece >= 1.
void PushInPieces(const MessageCall& call, std::uint64_t version, bool ema, std::span<const float> values,
                  std::uint64_t piece = kPieceValues);

// Coordinator: puts together what PushInPieces sends.
class PushedWeights {
 public:
  // `total`: the number of trained parameters, the only one that is accepted.
  explicit PushedWeights(std::uint64_t total) : total_(total) {}

  // A piece with offset 0 begins anew, for a trainer that was replaced.
  void Add(PushWeights piece);
  // The whole array once all pieces of it have come, and then no more; otherwise nothing.
  std::optional<std::vector<float>> Take(std::uint64_t version, bool ema);

 private:
  struct Array {
    std::uint64_t version = 0;
    std::uint64_t checksum = 0;
    std::vector<float> values;
  };
  std::uint64_t total_;
  Array arrays_[2];  // by `ema`
};

}  // namespace spotlight
