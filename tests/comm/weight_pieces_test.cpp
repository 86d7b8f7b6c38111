#include "comm/weight_pieces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/peer_lost.hpp"

namespace spotlight {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kRun = 0x77;

template <class F>
std::string ErrorOf(F&& function) {
  try {
    function();
  } catch (const MessageError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<float> Values(std::size_t size) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), 0.5F);
  return values;
}

// A coordinator that answers over the wire; `damage` may change a piece, and from `gone_after` pieces on it has none.
struct Source {
  std::vector<float> values = Values(10);
  std::uint64_t piece = 4;
  std::vector<std::string> holders = {};
  std::size_t gone_after = 1000;
  std::function<void(Weights&)> damage = [](Weights&) {};
  std::function<void(WeightPieces&)> change = [](WeightPieces&) {};
  std::vector<std::size_t> sizes = {};  // of the pieces sent

  Message Reply(const Message& request) {
    if (const auto* find = std::get_if<FindWeights>(&request)) {
      if (sizes.size() >= gone_after) return NoWeights{find->version, find->ema};
      WeightPieces pieces = MapOf(find->version, find->ema, values, piece);
      pieces.holders = holders;
      change(pieces);
      return pieces;
    }
    if (sizes.size() >= gone_after) return NoWeights{};
    Message reply = PieceOf(std::get<FetchWeights>(request), values);
    if (auto* weights = std::get_if<Weights>(&reply)) {
      sizes.push_back(weights->values.size());
      damage(*weights);
    }
    return reply;
  }
  Message operator()(const Message& message) {
    return Decode(Encode(Reply(Decode(Encode(message, kRun), kRun)), kRun), kRun);
  }
};

std::string FetchError(Source source, std::size_t size = 10) {
  std::vector<float> out(size);
  return ErrorOf([&] { FetchInPieces(std::ref(source), {1, 3, true, ""}, out); });
}

std::string DamageError(const std::function<void(Weights&)>& damage) { return FetchError({.damage = damage}); }

TEST(FetchInPieces, WholeAndInPieces) {
  for (const std::uint64_t piece : {1, 4, 5, 10, 100}) {
    for (std::uint32_t rank = 0; rank < 5; ++rank) {
      Source source{.piece = piece};
      std::vector<float> out(10);
      EXPECT_EQ(FetchInPieces(std::ref(source), {rank, 3, false, ""}, out), (10 + piece - 1) / piece);
      EXPECT_EQ(out, source.values) << piece;
    }
  }
  Source source;
  std::vector<float> out(10);
  FetchInPieces(std::ref(source), {0, 3, false, ""}, out);
  EXPECT_THAT(source.sizes, ElementsAre(4, 4, 2));
  Source nothing{.values = {}};
  std::vector<float> none;
  EXPECT_EQ(FetchInPieces(std::ref(nothing), {0, 3, false, ""}, none), 0U);
}

TEST(FetchInPieces, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(DamageError([](Weights&) {}), "no error");
  EXPECT_THAT(FetchError({}, 11), HasSubstr("weights 3 (EMA): the coordinator has 10 values, the model here 11"));
  EXPECT_THAT(DamageError([](Weights& w) { w.version = 2; }), HasSubstr("the coordinator sent weights 2 (EMA)"));
  EXPECT_THAT(DamageError([](Weights& w) { w.ema = false; }), HasSubstr("the coordinator sent weights 3"));
  EXPECT_THAT(DamageError([](Weights& w) {
                if (w.offset == 0) w.values.pop_back();
              }),
              HasSubstr("asked for 4 values from 0 on, got 3"));
  EXPECT_THAT(DamageError([](Weights& w) { w.offset += w.offset == 4 ? 1 : 0; }),
              HasSubstr("asked for 4 values from 4 on, got 4 from 5 on"));
  EXPECT_THAT(DamageError([](Weights& w) { w.values[0] += w.offset == 8 ? 1 : 0; }),
              HasSubstr("piece 2 of weights 3 (EMA) changed on the way"));
  EXPECT_THAT(FetchError({.change = [](WeightPieces& pieces) { pieces.checksums.pop_back(); }}),
              HasSubstr("2 checksums for 10 values in pieces of 4"));
  EXPECT_THAT(FetchError({.change = [](WeightPieces& pieces) { pieces.piece = 0; }}), HasSubstr("in pieces of 0"));
  std::vector<float> out(10);
  EXPECT_THAT(ErrorOf([&] {
                FetchInPieces([](const Message&) { return Ack{}; }, {1, 3, false, ""}, out);
              }),
              HasSubstr("weights 3: the coordinator's reply is none of FindWeights'"));
}

TEST(FetchInPieces, APieceThatCameDamagedIsFetchedAgain) {
  for (const int damaged : {1, 2, 3}) {
    int left = damaged;
    Source source{.damage = [&](Weights& weights) {
      if (weights.offset == 4 && left-- > 0) weights.values[1] += 1;
    }};
    std::vector<float> out(10);
    const std::string error = ErrorOf([&] { FetchInPieces(std::ref(source), {1, 3, false, ""}, out); });
    if (damaged < 3) {
      EXPECT_EQ(error, "no error") << damaged;
      EXPECT_EQ(out, source.values) << damaged;
    } else {
      EXPECT_THAT(error, HasSubstr("piece 1 of weights 3 changed on the way"));
    }
  }
}

// Other workers; each has a behaviour of its own.
struct Peers {
  std::map<std::string, std::function<Message(const FetchWeights&)>> at;
  std::vector<std::string> asked = {};
  std::vector<std::size_t> had = {};

  Holders holders() {
    return {[this](const std::string& address, const Message& message) {
              asked.push_back(address);
              return at.at(address)(std::get<FetchWeights>(message));
            },
            [this](const WeightPieces&, std::size_t piece) { had.push_back(piece); }};
  }
  std::size_t AskedOf(const std::string& address) const {
    return static_cast<std::size_t>(std::count(asked.begin(), asked.end(), address));
  }
};

constexpr std::size_t kMany = 64;  // pieces

Source SourceWith(std::vector<std::string> holders) {
  return {.values = Values(kMany), .piece = 1, .holders = std::move(holders)};
}

std::size_t FetchMany(Source& source, Peers& peers) {
  std::vector<float> out(kMany);
  const std::size_t from_coordinator = FetchInPieces(std::ref(source), {1, 3, false, "me"}, out, peers.holders());
  EXPECT_EQ(out, source.values);
  EXPECT_EQ(peers.had.size(), kMany);
  return from_coordinator;
}

TEST(FetchFromHolders, TheCoordinatorSendsNothingThatTheyHave) {
  Source source = SourceWith({"a"});
  Peers peers{.at = {{"a", [&](const FetchWeights& fetch) { return PieceOf(fetch, source.values); }}}};
  EXPECT_EQ(FetchMany(source, peers), 0U);
  EXPECT_EQ(peers.AskedOf("a"), kMany);
}

TEST(FetchFromHolders, WhatTheyDoNotHaveYetComesFromTheCoordinator) {
  Source source = SourceWith({"a", "b"});
  const auto some = [&](std::uint64_t rest) {
    return [&source, rest](const FetchWeights& fetch) -> Message {
      if (fetch.offset % 4 != rest) return NoWeights{};
      return PieceOf(fetch, source.values);
    };
  };
  Peers peers{.at = {{"a", some(1)}, {"b", some(2)}}};
  EXPECT_EQ(FetchMany(source, peers), kMany / 2);
}

TEST(FetchFromHolders, ASourceThatDiesHalfwayCostsOnePiece) {
  Source source = SourceWith({"a", "b"});
  std::size_t sent = 0;
  Peers peers{.at = {{"a",
                      [&](const FetchWeights& fetch) {
                        if (++sent > kMany / 2) throw PeerLost("killed");
                        return PieceOf(fetch, source.values);
                      }},
                     {"b", [](const FetchWeights&) -> Message { throw PeerLost("never there"); }}}};
  EXPECT_EQ(FetchMany(source, peers), kMany / 2) << "what had come is kept";
  EXPECT_EQ(peers.AskedOf("a"), kMany / 2 + 1);
  EXPECT_EQ(peers.AskedOf("b"), 1U);
}

TEST(FetchFromHolders, AFlippedBitIsNeverUsed) {
  Source source = SourceWith({"a", "b"});
  std::size_t sent = 0;
  Peers peers{.at = {{"a",
                      [&](const FetchWeights& fetch) {
                        Message reply = PieceOf(fetch, source.values);
                        if (++sent == 10) std::get<Weights>(reply).values[0] += 1e-3F;
                        return reply;
                      }},
                     {"b", [&](const FetchWeights&) -> Message { return Ack{}; }}}};
  FetchMany(source, peers);
  EXPECT_LE(peers.AskedOf("a"), 10U) << "asked after it had sent what was wrong";
  EXPECT_EQ(peers.AskedOf("b"), 1U);
}

std::function<Message(const FetchWeights&)> After(int milliseconds, const Source& source) {
  return [&source, milliseconds](const FetchWeights& fetch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return PieceOf(fetch, source.values);
  };
}

TEST(FetchFromHolders, ASlowOneIsAskedOnce) {
  for (const auto& order : {std::vector<std::string>{"slow", "quick"}, std::vector<std::string>{"quick", "slow"}}) {
    Source source = SourceWith(order);
    Peers peers{.at = {{"slow", After(100, source)}, {"quick", After(1, source)}}};
    EXPECT_EQ(FetchMany(source, peers), 0U);
    EXPECT_LE(peers.AskedOf("slow"), 2U);
  }
}

TEST(FetchFromHolders, OneSlowerThanTheCoordinatorIsAskedOnce) {
  Source source = SourceWith({"slow"});
  Peers peers{.at = {{"slow", After(300, source)}}};
  EXPECT_EQ(FetchMany(source, peers), kMany - 1);
}

TEST(FetchFromHolders, ANewVersionMeanwhile) {
  // The coordinator has dropped them; a holder, though slow, has all of it.
  Source source = SourceWith({"a", "b"});
  source.gone_after = kMany - 4;
  Peers peers{.at = {{"a", After(300, source)}, {"b", [](const FetchWeights&) -> Message { return NoWeights{}; }}}};
  EXPECT_EQ(FetchMany(source, peers), kMany - 4);
  EXPECT_EQ(peers.AskedOf("a"), 4U);
  // Nobody has.
  source = SourceWith({"b"});
  source.gone_after = 5;
  std::vector<float> out(kMany);
  EXPECT_THROW(FetchInPieces(std::ref(source), {1, 3, false, ""}, out, peers.holders()), WeightsGone);
  source.gone_after = 0;
  EXPECT_THAT(ErrorOf([&] {
                FetchInPieces(std::ref(source), {1, 3, false, ""}, out);
              }),
              HasSubstr("weights 3: nobody has them any more"));
}

TEST(FetchFromHolders, OtherValuesOfTheVersionMeanwhileAreRefused) {
  Source source = SourceWith({});
  Peers peers;
  source.change = [&](WeightPieces& pieces) { pieces.checksums[7] += source.sizes.size() > 5 ? 1 : 0; };
  std::vector<float> out(kMany);
  EXPECT_THAT(ErrorOf([&] {
                FetchInPieces(std::ref(source), {1, 3, false, ""}, out, peers.holders());
              }),
              HasSubstr("weights 3: replaced at the coordinator while they were fetched"));
}

TEST(FetchFromHolders, RanksBeginAtOtherPlaces) {
  std::set<std::size_t> first;
  for (std::uint32_t rank = 1; rank <= 8; ++rank) {
    Source source = SourceWith({});
    Peers peers;
    std::vector<float> out(kMany);
    FetchInPieces(std::ref(source), {rank, 3, false, ""}, out, peers.holders());
    first.insert(peers.had.at(0) / (kMany / 8));
  }
  EXPECT_GE(first.size(), 6U) << "eighths of the weights";
}

TEST(PieceOf, CountAndEnd) {
  const std::vector<float> values = Values(5);
  EXPECT_EQ(std::get<Weights>(PieceOf({1, false, 0, 9}, values)).values, values);
  const auto tail = std::get<Weights>(PieceOf({1, true, 3, 100}, values));
  EXPECT_THAT(tail.values, ElementsAre(3.5F, 4.5F));
  EXPECT_EQ(tail.version, 1u);
  EXPECT_TRUE(tail.ema);
  EXPECT_EQ(tail.offset, 3u);
  EXPECT_TRUE(std::holds_alternative<NoWeights>(PieceOf({1, false, 5, 1}, values)));
  EXPECT_TRUE(std::holds_alternative<NoWeights>(PieceOf({1, false, ~std::uint64_t{0}, ~std::uint64_t{0}}, values)));
}

TEST(HolderList, TheNextInACircle) {
  HolderList list;
  for (const std::uint32_t rank : {4U, 9U, 2U}) list.Add(rank, std::to_string(rank));
  EXPECT_THAT(list.After(4), ElementsAre("9", "2"));
  EXPECT_THAT(list.After(5), ElementsAre("9", "2", "4"));
  EXPECT_THAT(list.After(9), ElementsAre("2", "4"));
  list.Remove(2);
  EXPECT_THAT(list.After(9), ElementsAre("4"));
  for (std::uint32_t rank = 10; rank < 30; ++rank) list.Add(rank, std::to_string(rank));
  EXPECT_THAT(list.After(28), ElementsAre("29", "4", "9", "10", "11", "12", "13", "14"));
}

TEST(PushInPieces, ArrivesWhole) {
  const std::vector<float> values = Values(10), ema = Values(10);
  PushedWeights pushed(10);
  const auto call = [&](const Message& message) {
    pushed.Add(std::get<PushWeights>(Decode(Encode(message, kRun), kRun)));
    EXPECT_FALSE(pushed.Take(6, false).has_value());
    return Ack{};
  };
  PushInPieces(call, 7, false, values, 4);
  EXPECT_FALSE(pushed.Take(7, true).has_value());
  PushInPieces(call, 7, true, ema, 3);
  EXPECT_EQ(pushed.Take(7, false), std::optional(values));
  EXPECT_EQ(pushed.Take(7, true), std::optional(ema));
  EXPECT_FALSE(pushed.Take(7, false).has_value()) << "taken";
}

TEST(PushInPieces, BeginsAnew) {
  PushedWeights pushed(10);
  int calls = 0;
  const auto broken = [&](const Message& message) -> Message {
    if (++calls == 3) return Failed{"stop", 1, 0};
    pushed.Add(std::get<PushWeights>(message));
    return Ack{};
  };
  EXPECT_THAT(ErrorOf([&] { PushInPieces(broken, 7, false, Values(10), 4); }), HasSubstr("weights 7: the coordinator"));
  EXPECT_FALSE(pushed.Take(7, false).has_value());
  PushInPieces(broken, 7, false, Values(10), 4);
  EXPECT_EQ(pushed.Take(7, false), std::optional(Values(10)));
}

TEST(PushedWeights, WhatDoesNotFollowIsNamed) {
  PushedWeights pushed(4);
  const std::vector<float> values = Values(4);
  const std::uint64_t checksum = Checksum(values);
  EXPECT_THAT(ErrorOf([&] {
                pushed.Add({7, false, checksum, 0, 5, values});
              }),
              HasSubstr("weights 7: the trainer has 5 values, the model here 4"));
  EXPECT_THAT(ErrorOf([&] {
                pushed.Add({7, false, checksum, 2, 4, {2.5F, 3.5F}});
              }),
              HasSubstr("weights 7: a piece of 2 values from 2 on does not follow 0 values of weights 0"));
  pushed.Add({7, false, checksum, 0, 4, {0.5F, 1.5F}});
  EXPECT_THAT(ErrorOf([&] { pushed.Add({8, false, checksum, 2, 4, {2.5F, 3.5F}}); }), HasSubstr("of weights 7"));
  EXPECT_THAT(ErrorOf([&] { pushed.Add({7, false, checksum + 1, 2, 4, {2.5F, 3.5F}}); }), HasSubstr("not follow"));
  EXPECT_THAT(ErrorOf([&] { pushed.Add({7, false, checksum, 2, 4, {1, 2, 3}}); }), HasSubstr("piece of 3 values"));
  EXPECT_THAT(ErrorOf([&] { pushed.Add({7, true, checksum, 2, 4, {2.5F, 3.5F}}); }), HasSubstr("not follow 0 values"));
  pushed.Add({7, false, checksum, 2, 4, {2.5F, 4.5F}});
  EXPECT_THAT(ErrorOf([&] { pushed.Take(7, false); }), HasSubstr("weights 7 changed on the way"));
  EXPECT_FALSE(pushed.Take(7, false).has_value());
}

}  // namespace
}  // namespace spotlight
