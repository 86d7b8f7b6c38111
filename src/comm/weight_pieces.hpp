// Weights over the control plane in pieces: a LoRA adapter has up to 2 GB, a whole model 41 GB and more, but one
// message must travel within kSilenceLimit (channel.hpp), and other workers' calls wait behind it.
//
// Fetching: the coordinator tells the checksum of every piece, and which workers have some of them. Whoever wants the
// weights takes each piece from the holder that is the quickest so far, from the coordinator where no quick one has it,
// and checks it; it begins at a place of its own, so that many who begin together soon have different pieces to give to
// each other, and the coordinator sends each piece about once. A source that dies, is slow or sends what is wrong costs
// the piece under way; what has come is kept. comm/weight_exchange.hpp is the holder's side.
//
// What does not fit together throws MessageError, which names the version and both figures.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/messages.hpp"

namespace spotlight {

// 16 MiB: fast enough over a link of 2 MB/s, and no slower over a fast one than larger pieces.
inline constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 22;

// Sends a message to the coordinator and returns its reply.
using MessageCall = std::function<Message(const Message&)>;

// No source has these weights any more: newer ones have taken their place. What they were wanted for is stale, too.
class WeightsGone : public MessageError {
 public:
  using MessageError::MessageError;
};

// The workers that hold weights, as one who fetches sees them.
struct Holders {
  // Sends a message to the holder at an address and returns its reply. Throws PeerLost; it is not asked again.
  std::function<Message(const std::string& address, const Message&)> call;
  // This piece of the map has come and is right.
  std::function<void(const WeightPieces& map, std::size_t piece)> have;
};

// Worker: the weights `wanted` into `out`, whose size is the number of trained parameters. Returns how many pieces came
// from the coordinator. Throws WeightsGone, MessageError, and what `coordinator` throws where only it has a piece.
std::size_t FetchInPieces(const MessageCall& coordinator, const FindWeights& wanted, std::span<float> out,
                          const Holders& holders = {});

// Coordinator: what all values of a version are; no holders yet. piece >= 1.
WeightPieces MapOf(std::uint64_t version, bool ema, std::span<const float> values, std::uint64_t piece = kPieceValues);

// Whoever has all values of a version: the reply to `fetch`, NoWeights if it asks for what is not there.
Message PieceOf(const FetchWeights& fetch, std::span<const float> values);

// Coordinator: the workers that hold a version.
class HolderList {
 public:
  void Add(std::uint32_t rank, const std::string& address) { addresses_[rank] = address; }
  void Remove(std::uint32_t rank) { addresses_.erase(rank); }
  // The addresses of the next kMost ranks in a circle: every rank has its own, and nobody has more to serve.
  std::vector<std::string> After(std::uint32_t rank) const;
  static constexpr std::size_t kMost = 8;

 private:
  std::map<std::uint32_t, std::string> addresses_;  // by rank
};

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
