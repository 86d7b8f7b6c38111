#include "comm/weight_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "comm/peer_lost.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;

// A holder whose last piece took longer than both is asked only for what the coordinator does not have.
constexpr double kSlow = 4;         // times what the coordinator's took
constexpr double kPatience = 0.25;  // seconds
constexpr double kForever = std::numeric_limits<double>::infinity();
constexpr int kTries = 3;  // at the coordinator, for a piece that comes damaged: there is no other source

std::string Name(std::uint64_t version, bool ema) { return fmt::format("weights {}{}", version, ema ? " (EMA)" : ""); }

void CheckWhole(const std::string& name, std::uint64_t checksum, std::uint64_t expected) {
  if (checksum == expected) return;
  throw MessageError(fmt::format("{} changed on the way: checksum {:016x}, sent as {:016x}", name, checksum, expected));
}

std::size_t PiecesOf(std::uint64_t total, std::uint64_t piece) { return total / piece + (total % piece > 0 ? 1 : 0); }

// Where a rank begins: places of ranks that follow each other are spread evenly (multiples of the golden ratio).
std::size_t FirstPiece(std::uint32_t rank, std::size_t pieces) {
  const std::uint32_t fraction = rank * 0x9e3779b9U;
  return static_cast<std::size_t>((std::uint64_t{fraction} * pieces) >> 32);
}

class Fetch {
 public:
  Fetch(const MessageCall& coordinator, const FindWeights& wanted, std::span<float> out, const Holders& holders)
      : coordinator_(coordinator),
        wanted_(wanted),
        out_(out),
        holders_(holders),
        name_(Name(wanted.version, wanted.ema)) {}

  std::size_t Run() {
    if (!Find()) throw Gone();
    const std::size_t pieces = map_.checksums.size();
    const std::size_t first = FirstPiece(wanted_.rank, pieces);
    for (std::size_t i = 0; i < pieces; ++i) {
      const std::size_t piece = (first + i) % pieces;
      FetchPiece(piece);
      if (holders_.have) holders_.have(map_, piece);
    }
    return from_coordinator_;
  }

 private:
  struct Holder {
    std::string address;
    double seconds = 0;        // that its last piece took; 0: has not sent any
    bool usable = true;        // is there, and has sent nothing wrong
    std::size_t lacks = kAny;  // a piece that it does not have yet
  };
  static constexpr std::size_t kAny = static_cast<std::size_t>(-1);

  // False: there is no such version any more.
  bool Find() {
    const Message reply = coordinator_(wanted_);
    if (std::holds_alternative<NoWeights>(reply)) return false;
    const auto* map = std::get_if<WeightPieces>(&reply);
    if (map == nullptr) throw MessageError(name_ + ": the coordinator's reply is none of FindWeights'");
    if (map->total != out_.size()) {
      throw MessageError(
          fmt::format("{}: the coordinator has {} values, the model here {}", name_, map->total, out_.size()));
    }
    if (map->piece == 0 || map->checksums.size() != PiecesOf(map->total, map->piece)) {
      throw MessageError(fmt::format("{}: {} checksums for {} values in pieces of {}", name_, map->checksums.size(),
                                     map->total, map->piece));
    }
    if (!map_.checksums.empty() && (map->checksums != map_.checksums || map->piece != map_.piece)) {
      throw MessageError(name_ + ": replaced at the coordinator while they were fetched");
    }
    map_ = *map;
    if (!holders_.call) return true;
    std::vector<Holder> listed;
    for (const std::string& address : map_.holders) {
      const auto known =
          std::find_if(known_.begin(), known_.end(), [&](const Holder& holder) { return holder.address == address; });
      listed.push_back(known == known_.end() ? Holder{.address = address} : *known);
    }
    known_ = std::move(listed);
    return true;
  }

  void FetchPiece(std::size_t piece) {
    const double longest = std::max(kPatience, kSlow * coordinator_seconds_);
    if (!FromHolders(piece, longest) && !FromCoordinator(piece) && !FromHolders(piece, kForever)) throw Gone();
  }

  // longest: seconds that a holder may have taken the last time.
  bool FromHolders(std::size_t piece, double longest) {
    while (true) {
      Holder* best = nullptr;
      for (Holder& holder : known_) {
        if (!holder.usable || holder.lacks == piece || holder.seconds > longest) continue;
        if (best == nullptr || holder.seconds < best->seconds) best = &holder;
      }
      if (best == nullptr) return false;
      if (FromHolder(*best, piece)) return true;
    }
  }

  bool FromHolder(Holder& holder, std::size_t piece) {
    try {
      const Clock::time_point start = Clock::now();
      const Message reply = holders_.call(holder.address, Ask(piece));
      if (const auto* weights = std::get_if<Weights>(&reply); weights != nullptr && IsRight(piece, *weights)) {
        holder.seconds = std::chrono::duration<double>(Clock::now() - start).count();
        Keep(*weights);
        return true;
      }
      holder.lacks = piece;
      holder.usable = std::holds_alternative<NoWeights>(reply);
    } catch (const PeerLost&) {
      holder.usable = false;
    } catch (const MessageError&) {
      holder.usable = false;
    }
    if (!holder.usable) LogLine(fmt::format("{}: the holder {} is of no use", name_, EndpointOf(holder.address)));
    return false;
  }

  // False: it does not have them any more.
  bool FromCoordinator(std::size_t piece, int tries = kTries) {
    const Clock::time_point start = Clock::now();
    const Message reply = coordinator_(Ask(piece));
    if (std::holds_alternative<NoWeights>(reply)) return false;
    const auto* weights = std::get_if<Weights>(&reply);
    if (weights == nullptr) throw MessageError(name_ + ": the coordinator's reply is none of FetchWeights'");
    const FetchWeights asked = Ask(piece);
    if (weights->version != asked.version || weights->ema != asked.ema) {
      throw MessageError(fmt::format("{}: the coordinator sent {}", name_, Name(weights->version, weights->ema)));
    }
    if (weights->offset != asked.offset || weights->values.size() != asked.count) {
      throw MessageError(fmt::format("{}: asked for {} values from {} on, got {} from {} on", name_, asked.count,
                                     asked.offset, weights->values.size(), weights->offset));
    }
    if (!IsRight(piece, *weights) && tries > 1) {
      LogLine(fmt::format("piece {} of {} came damaged; it is fetched again", piece, name_));
      return FromCoordinator(piece, tries - 1);
    }
    CheckWhole(fmt::format("piece {} of {}", piece, name_), Checksum(weights->values), map_.checksums[piece]);
    Keep(*weights);
    coordinator_seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    ++from_coordinator_;
    if (holders_.call) Find();  // others may have begun meanwhile; if the version has gone, those that are known remain
    return true;
  }

  FetchWeights Ask(std::size_t piece) const {
    const std::uint64_t offset = piece * map_.piece;
    return {wanted_.version, wanted_.ema, offset, std::min<std::uint64_t>(map_.piece, out_.size() - offset)};
  }

  bool IsRight(std::size_t piece, const Weights& weights) const {
    const FetchWeights asked = Ask(piece);
    return weights.version == asked.version && weights.ema == asked.ema && weights.offset == asked.offset &&
           weights.values.size() == asked.count && Checksum(weights.values) == map_.checksums[piece];
  }

  void Keep(const Weights& weights) {
    std::copy(weights.values.begin(), weights.values.end(), out_.begin() + static_cast<std::ptrdiff_t>(weights.offset));
  }

  // Without the key.
  static std::string EndpointOf(const std::string& address) { return address.substr(0, address.find(' ')); }

  WeightsGone Gone() const {
    return WeightsGone(name_ + ": nobody has them any more, newer ones have taken their place");
  }

  const MessageCall& coordinator_;
  const FindWeights& wanted_;
  std::span<float> out_;
  const Holders& holders_;
  std::string name_;
  WeightPieces map_;
  std::vector<Holder> known_;
  double coordinator_seconds_ = 0;  // that its last piece took
  std::size_t from_coordinator_ = 0;
};

}  // namespace

std::size_t FetchInPieces(const MessageCall& coordinator, const FindWeights& wanted, std::span<float> out,
                          const Holders& holders) {
  return Fetch(coordinator, wanted, out, holders).Run();
}

WeightPieces MapOf(std::uint64_t version, bool ema, std::span<const float> values, std::uint64_t piece) {
  SPOTLIGHT_REQUIRE(piece >= 1, "piece");
  WeightPieces map{
      .version = version, .ema = ema, .total = values.size(), .piece = piece, .checksums = {}, .holders = {}};
  for (std::uint64_t offset = 0; offset < values.size(); offset += piece) {
    map.checksums.push_back(Checksum(values.subspan(offset, std::min<std::uint64_t>(piece, values.size() - offset))));
  }
  return map;
}

Message PieceOf(const FetchWeights& fetch, std::span<const float> values) {
  if (fetch.offset >= values.size()) return NoWeights{fetch.version, fetch.ema};
  const auto piece = values.subspan(fetch.offset, std::min<std::uint64_t>(fetch.count, values.size() - fetch.offset));
  Weights weights{fetch.version, fetch.ema, fetch.offset, {piece.begin(), piece.end()}};
  DamagePoint("weights.served", std::as_writable_bytes(std::span(weights.values)));
  return weights;
}

std::vector<std::string> HolderList::After(std::uint32_t rank) const {
  std::vector<std::string> addresses;
  auto next = addresses_.upper_bound(rank);
  for (std::size_t left = addresses_.size(); left > 0 && addresses.size() < kMost; --left, ++next) {
    if (next == addresses_.end()) next = addresses_.begin();
    if (next->first != rank) addresses.push_back(next->second);
  }
  return addresses;
}

void PushInPieces(const MessageCall& call, std::uint64_t version, bool ema, std::span<const float> values,
                  std::uint64_t piece) {
  SPOTLIGHT_REQUIRE(piece >= 1, "piece");
  const std::uint64_t checksum = Checksum(values);
  for (std::uint64_t offset = 0; offset < values.size(); offset += piece) {
    const auto part = values.subspan(offset, std::min<std::uint64_t>(piece, values.size() - offset));
    const Message reply = call(PushWeights{version, ema, checksum, offset, values.size(), {part.begin(), part.end()}});
    if (!std::holds_alternative<Ack>(reply)) {
      throw MessageError(Name(version, ema) + ": the coordinator did not accept them");
    }
  }
}

void PushedWeights::Add(PushWeights piece) {
  const std::string name = Name(piece.version, piece.ema);
  Array& array = arrays_[piece.ema ? 1 : 0];
  if (piece.total != total_) {
    throw MessageError(fmt::format("{}: the trainer has {} values, the model here {}", name, piece.total, total_));
  }
  if (piece.offset == 0) {
    array = {piece.version, piece.checksum, {}};
    array.values.reserve(total_);
  }
  if (piece.version != array.version || piece.checksum != array.checksum || piece.offset != array.values.size() ||
      piece.values.size() > total_ - piece.offset) {
    throw MessageError(fmt::format("{}: a piece of {} values from {} on does not follow {} values of {}", name,
                                   piece.values.size(), piece.offset, array.values.size(),
                                   Name(array.version, piece.ema)));
  }
  array.values.insert(array.values.end(), piece.values.begin(), piece.values.end());
}

std::optional<std::vector<float>> PushedWeights::Take(std::uint64_t version, bool ema) {
  Array& array = arrays_[ema ? 1 : 0];
  if (array.version != version || array.values.size() != total_) return std::nullopt;
  Array whole = std::exchange(array, {});
  CheckWhole(Name(version, ema), Checksum(whole.values), whole.checksum);
  return std::move(whole.values);
}

}  // namespace spotlight
