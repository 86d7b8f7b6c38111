#include "comm/weight_pieces.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

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

// A coordinator that answers FetchWeights with pieces of `values`, over the wire; `damage` may change a reply.
struct Source {
  std::vector<float> values = Values(10);
  std::function<void(Weights&)> damage = [](Weights&) {};
  std::vector<std::size_t> sizes;  // of the pieces sent

  Message operator()(const Message& message) {
    const Message request = Decode(Encode(message, kRun), kRun);
    Weights reply = PieceOf(std::get<FetchWeights>(request), values, Checksum(values));
    sizes.push_back(reply.values.size());
    damage(reply);
    return Decode(Encode(reply, kRun), kRun);
  }
};

std::string FetchError(const std::function<void(Weights&)>& damage, std::size_t size = 10) {
  Source source;
  source.damage = damage;
  std::vector<float> out(size);
  return ErrorOf([&] { FetchInPieces(std::ref(source), 3, true, out, 4); });
}

TEST(FetchInPieces, WholeAndInPieces) {
  for (const std::uint64_t piece : {1, 4, 5, 10, 100}) {
    Source source;
    std::vector<float> out(10);
    FetchInPieces(std::ref(source), 3, false, out, piece);
    EXPECT_EQ(out, source.values) << piece;
  }
  Source source;
  std::vector<float> out(10);
  FetchInPieces(std::ref(source), 3, false, out, 4);
  EXPECT_THAT(source.sizes, ElementsAre(4, 4, 2));
}

TEST(FetchInPieces, WhatDoesNotFitIsNamed) {
  EXPECT_EQ(FetchError([](Weights&) {}), "no error");
  EXPECT_THAT(FetchError([](Weights&) {}, 11),
              HasSubstr("weights 3 (EMA): the coordinator has 10 values, the model here 11"));
  EXPECT_THAT(FetchError([](Weights& w) { w.version = 2; }), HasSubstr("the coordinator sent weights 2 (EMA)"));
  EXPECT_THAT(FetchError([](Weights& w) { w.ema = false; }), HasSubstr("the coordinator sent weights 3"));
  EXPECT_THAT(FetchError([](Weights& w) { w.values.pop_back(); }), HasSubstr("asked for 4 values from 0 on, got 3"));
  EXPECT_THAT(FetchError([](Weights& w) { w.offset += w.offset > 0 ? 1 : 0; }),
              HasSubstr("asked for 4 values from 4 on, got 4 from 5 on"));
  EXPECT_THAT(FetchError([](Weights& w) { w.values[0] += w.offset == 8 ? 1 : 0; }), HasSubstr("changed on the way"));
  EXPECT_THAT(FetchError([](Weights& w) { w.checksum += w.offset; }), HasSubstr("replaced at the coordinator"));
  std::vector<float> out(10);
  EXPECT_THAT(ErrorOf([&] { FetchInPieces([](const Message&) { return Ack{}; }, 3, false, out); }),
              HasSubstr("weights 3: the coordinator's reply is none of FetchWeights'"));
}

TEST(PieceOf, CountAndEnd) {
  const std::vector<float> values = Values(5);
  EXPECT_EQ(PieceOf({1, false, 0, 0}, values, 9).values, values);
  const Weights tail = PieceOf({1, true, 3, 100}, values, 9);
  EXPECT_THAT(tail.values, ElementsAre(3.5F, 4.5F));
  EXPECT_EQ(tail.version, 1u);
  EXPECT_TRUE(tail.ema);
  EXPECT_EQ(tail.checksum, 9u);
  EXPECT_EQ(tail.offset, 3u);
  EXPECT_EQ(tail.total, 5u);
  EXPECT_TRUE(PieceOf({1, false, 5, 1}, values, 9).values.empty());
  EXPECT_THAT(ErrorOf([&] { PieceOf({1, false, 6, 0}, values, 9); }), HasSubstr("weights 1: asked for value 6 of 5"));
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
