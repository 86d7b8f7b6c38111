#include "comm/weight_pieces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/error.hpp"

namespace spotlight {
namespace {

std::string Name(std::uint64_t version, bool ema) { return fmt::format("weights {}{}", version, ema ? " (EMA)" : ""); }

void CheckWhole(const std::string& name, std::uint64_t checksum, std::uint64_t expected) {
  if (checksum == expected) return;
  throw MessageError(fmt::format("{} changed on the way: checksum {:016x}, sent as {:016x}", name, checksum, expected));
}

}  // namespace

void FetchInPieces(const MessageCall& call, std::uint64_t version, bool ema, std::span<float> out,
                   std::uint64_t piece) {
  SPOTLIGHT_REQUIRE(piece >= 1, "piece");
  const std::string name = Name(version, ema);
  PiecewiseChecksum checksum(out.size());
  std::uint64_t expected = 0;
  for (std::uint64_t offset = 0; offset < out.size();) {
    const std::uint64_t count = std::min<std::uint64_t>(piece, out.size() - offset);
    const Message reply = call(FetchWeights{version, ema, offset, count});
    const auto* weights = std::get_if<Weights>(&reply);
    if (weights == nullptr) throw MessageError(name + ": the coordinator's reply is none of FetchWeights'");
    if (weights->version != version || weights->ema != ema) {
      throw MessageError(fmt::format("{}: the coordinator sent {}", name, Name(weights->version, weights->ema)));
    }
    if (weights->total != out.size()) {
      throw MessageError(
          fmt::format("{}: the coordinator has {} values, the model here {}", name, weights->total, out.size()));
    }
    if (weights->offset != offset || weights->values.size() != count) {
      throw MessageError(fmt::format("{}: asked for {} values from {} on, got {} from {} on", name, count, offset,
                                     weights->values.size(), weights->offset));
    }
    if (offset > 0 && weights->checksum != expected) {
      throw MessageError(fmt::format("{}: replaced at the coordinator while they were fetched", name));
    }
    expected = weights->checksum;
    std::copy(weights->values.begin(), weights->values.end(), out.begin() + static_cast<std::ptrdiff_t>(offset));
    checksum.Add(weights->values);
    offset += count;
  }
  if (!out.empty()) CheckWhole(name, checksum.value(), expected);
}

Weights PieceOf(const FetchWeights& fetch, std::span<const float> values, std::uint64_t checksum) {
  if (fetch.offset > values.size()) {
    throw MessageError(
        fmt::format("{}: asked for value {} of {}", Name(fetch.version, fetch.ema), fetch.offset, values.size()));
  }
  const std::uint64_t left = values.size() - fetch.offset;
  const auto piece = values.subspan(fetch.offset, fetch.count == 0 ? left : std::min(fetch.count, left));
  return {fetch.version, fetch.ema, checksum, {piece.begin(), piece.end()}, fetch.offset, values.size()};
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
