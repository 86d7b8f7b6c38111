#include "comm/messages.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace spotlight {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kRun = 0x1234;

Sample FullSample() {
  Sample sample;
  sample.request = {7, RequestKind::kEvaluate, 3, 11, 0xfedcba9876543210ULL, 2, 1, 4, 3, true, 6};
  sample.rank = 5;
  sample.reward = 0.25;
  sample.terms = {0.5, std::numeric_limits<double>::quiet_NaN()};
  sample.latents = {1.0F, -2.0F, 3.5F};
  sample.log_probs = {-0.125F};
  sample.image = {1, 2, {0.0F, 0.1F, 0.2F, 0.3F, 0.4F, 0.5F}};
  return sample;
}

// One message of each type, with every list and text filled.
std::vector<Message> AllMessages() {
  Trained trained;
  trained.metrics = {{"loss", 0.5}, {"grad", 2}};
  trained.weights = {1, 2};
  trained.ema_weights = {3};
  return {Pull{1, Role::kTrainer, 8, {0.5, 1}, {1, 2}, 40},
          Work{{FullSample().request}, {{3, {1, 2}, {3, 4, 5}, {-0.5F}}}, 4},
          Wait{250, 2},
          Push{2, {FullSample(), FullSample()}, {2, 4, 6, 3, 0.5, 0.25, 0.125, 1}},
          Ack{},
          FetchWeights{3, true, 64, 16},
          Weights{3, true, 64, {1, 2, 3}},
          Train{4, 7},
          trained,
          Save{"a path", 12},
          Saved{},
          Finish{},
          Failed{"why", 74},
          FetchPrompts{TextList::kNegative, {0, 4}},
          Prompts{TextList::kEval, {{4, 2, {1, 2, 3, 4}}, {0, 1, {5, 6}}}},
          PushWeights{3, true, 9, 64, 99, {1, 2}},
          CommitStates{2, {FullSample().request}, {{3, {1, 2}, {3, 4, 5}, {-0.5F}}}},
          Hello{2, Role::kExplorer, "a host", 99, true, 0xfedcULL, {{"prompts/train", "12ab"}}},
          Activate{},
          GiveBack{2, true},
          RegroupReport{2, 4, 1, 2, 0.25, 0.5, "2 3"},
          Join{"a host", 4},
          Welcome{100, "[run]", "a folder", {{"model/path", "34cd"}, {"prompts/train", "12ab"}}},
          FindWeights{2, 3, true, "tcp://a:1 key"},
          WeightPieces{3, true, 99, 64, {7, 8}, {"tcp://a:1 key", "tcp://b:2 key"}},
          NoWeights{3, true},
          Drop{RequestKind::kExplore, 9},
          FetchSamples{3},
          Samples{{{FullSample(), -1.5}, {FullSample(), 0.5}}}};
}

template <class F>
std::string ErrorOf(F&& function) {
  try {
    function();
  } catch (const MessageError& error) {
    return error.what();
  }
  return "no error";
}

std::string DecodeError(const Bytes& bytes, std::uint64_t run = kRun) {
  return ErrorOf([&] { Decode(bytes, run); });
}

TEST(Messages, EveryTypeSurvivesTheWire) {
  std::vector<Message> messages = AllMessages();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    ASSERT_EQ(messages[i].index(), i);
    const Bytes bytes = Encode(messages[i], kRun);
    const Message decoded = Decode(bytes, kRun);
    EXPECT_EQ(decoded.index(), i);
    EXPECT_EQ(Encode(decoded, kRun), bytes);
  }
}

TEST(Messages, FieldsArriveWhereTheyBelong) {
  const Message decoded = Decode(Encode(Push{2, {FullSample()}, {}}, kRun), kRun);
  const Sample& got = std::get<Push>(decoded).samples.at(0);
  const Sample want = FullSample();
  EXPECT_EQ(got.request.id, want.request.id);
  EXPECT_EQ(got.request.kind, want.request.kind);
  EXPECT_EQ(got.request.iteration, want.request.iteration);
  EXPECT_EQ(got.request.prompt_index, want.request.prompt_index);
  EXPECT_EQ(got.request.seed, want.request.seed);
  EXPECT_EQ(got.request.weight_version, want.request.weight_version);
  EXPECT_EQ(got.request.window_begin, want.request.window_begin);
  EXPECT_EQ(got.request.window_end, want.request.window_end);
  EXPECT_EQ(got.request.keep_image, want.request.keep_image);
  EXPECT_EQ(got.rank, want.rank);
  EXPECT_EQ(got.reward, want.reward);
  EXPECT_EQ(got.terms[0], want.terms[0]);
  EXPECT_TRUE(std::isnan(got.terms[1]));
  EXPECT_EQ(got.latents, want.latents);
  EXPECT_EQ(got.log_probs, want.log_probs);
  EXPECT_EQ(got.image.width, want.image.width);
  EXPECT_EQ(got.image.rgb, want.image.rgb);

  const Message trained = Decode(Encode(AllMessages()[8], kRun), kRun);
  EXPECT_EQ(std::get<Trained>(trained).metrics.at("loss"), 0.5);
  EXPECT_EQ(std::get<Trained>(trained).ema_weights, std::vector<float>{3});

  const Message weights = Decode(Encode(AllMessages()[6], kRun), kRun);
  EXPECT_EQ(std::get<Weights>(weights).offset, 64u);
  const auto map = std::get<WeightPieces>(Decode(Encode(AllMessages()[24], kRun), kRun));
  EXPECT_EQ(map.total, 99u);
  EXPECT_EQ(map.piece, 64u);
  EXPECT_EQ(map.checksums, (std::vector<std::uint64_t>{7, 8}));
  EXPECT_EQ(map.holders, (std::vector<std::string>{"tcp://a:1 key", "tcp://b:2 key"}));
  const Message fetch = Decode(Encode(AllMessages()[5], kRun), kRun);
  EXPECT_EQ(std::get<FetchWeights>(fetch).offset, 64u);
  EXPECT_EQ(std::get<FetchWeights>(fetch).count, 16u);
  const Message fetch_prompts = Decode(Encode(AllMessages()[13], kRun), kRun);
  EXPECT_EQ(std::get<FetchPrompts>(fetch_prompts).list, TextList::kNegative);
  EXPECT_EQ(std::get<FetchPrompts>(fetch_prompts).indices, (std::vector<std::uint32_t>{0, 4}));
  const Message prompts = Decode(Encode(AllMessages()[14], kRun), kRun);
  EXPECT_EQ(std::get<Prompts>(prompts).list, TextList::kEval);
  EXPECT_EQ(std::get<Prompts>(prompts).entries.at(0).index, 4u);
  EXPECT_EQ(std::get<Prompts>(prompts).entries.at(0).tokens, 2u);
  EXPECT_EQ(std::get<Prompts>(prompts).entries.at(1).embedding, (std::vector<float>{5, 6}));
  const Message pushed = Decode(Encode(AllMessages()[15], kRun), kRun);
  EXPECT_EQ(std::get<PushWeights>(pushed).version, 3u);
  EXPECT_TRUE(std::get<PushWeights>(pushed).ema);
  EXPECT_EQ(std::get<PushWeights>(pushed).checksum, 9u);
  EXPECT_EQ(std::get<PushWeights>(pushed).offset, 64u);
  EXPECT_EQ(std::get<PushWeights>(pushed).total, 99u);
  EXPECT_EQ(std::get<PushWeights>(pushed).values, (std::vector<float>{1, 2}));
}

TEST(Messages, TruncatedOrLongerIsRefusedAtEveryLength) {
  for (const Message& message : AllMessages()) {
    Bytes bytes = Encode(message, kRun);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_NE(DecodeError(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length))), "no error");
    }
    bytes.push_back(std::byte{0});
    EXPECT_THAT(DecodeError(bytes), HasSubstr("says it has"));
  }
}

// A body cut short whose header agrees: the fields themselves must be checked.
TEST(Messages, TruncatedFieldsAreRefused) {
  for (const Message& message : AllMessages()) {
    const Bytes whole = Encode(message, kRun);
    for (std::size_t length = 24; length < whole.size(); ++length) {
      Bytes bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      const std::uint64_t body = length - 24;
      std::memcpy(bytes.data() + 16, &body, sizeof(body));
      EXPECT_NE(DecodeError(bytes), "no error") << "type " << message.index() << " length " << length;
    }
  }
}

TEST(Messages, DamageNeverCrashes) {
  for (const Message& message : AllMessages()) {
    const Bytes whole = Encode(message, kRun);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      Bytes bytes = whole;
      bytes[at] ^= std::byte{0xff};
      DecodeError(bytes);  // an error or another value, but no crash and no allocation of 2^60 bytes
    }
  }
}

TEST(Messages, ForeignMessagesAreNamed) {
  const Bytes good = Encode(Wait{1}, kRun);
  EXPECT_THAT(DecodeError(good, 0x99), HasSubstr("message of run 0000000000001234, this is run 0000000000000099"));
  Bytes bytes = good;
  bytes[0] = std::byte{0};
  EXPECT_THAT(DecodeError(bytes), HasSubstr("not a message of spotlight"));
  bytes = good;
  bytes[4] = std::byte{77};
  EXPECT_THAT(DecodeError(bytes),
              HasSubstr("message of version 77, this program speaks " + std::to_string(kMessageVersion)));
  bytes = good;
  bytes[6] = std::byte{200};
  EXPECT_THAT(DecodeError(bytes), HasSubstr("unknown type 200"));
  bytes = Encode(Ack{}, kRun);
  bytes[16] = std::byte{1};
  bytes.push_back(std::byte{0});
  EXPECT_THAT(DecodeError(bytes), HasSubstr("1 bytes too many"));
}

TEST(Messages, ValuesOutOfRangeAreRefused) {
  Bytes pull = Encode(Pull{}, kRun);
  pull[24 + 4] = std::byte{4};  // role
  EXPECT_THAT(DecodeError(pull), HasSubstr("has 4 where an enumeration is wanted"));
  Bytes fetch = Encode(FetchWeights{}, kRun);
  fetch[24 + 8] = std::byte{2};  // ema
  EXPECT_THAT(DecodeError(fetch), HasSubstr("has 2 where 0 or 1 is wanted"));
  Bytes prompts = Encode(FetchPrompts{}, kRun);
  prompts[24] = std::byte{3};  // list
  EXPECT_THAT(DecodeError(prompts), HasSubstr("has 3 where an enumeration is wanted"));
}

TEST(Messages, ChecksumSeesValueAndOrder) {
  const std::vector<float> values = {1, 2, 3};
  EXPECT_EQ(Checksum(values), Checksum(std::vector<float>{1, 2, 3}));
  EXPECT_NE(Checksum(values), Checksum(std::vector<float>{1, 3, 2}));
  EXPECT_NE(Checksum(values), Checksum(std::vector<float>{1, 2, std::nextafter(3.0F, 4.0F)}));
  EXPECT_NE(Checksum(values), Checksum(std::vector<float>{1, 2}));
  EXPECT_NE(Checksum(std::vector<float>{0.0F}), Checksum(std::vector<float>{-0.0F}));
}

}  // namespace
}  // namespace spotlight
