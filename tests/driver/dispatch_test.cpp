#include "driver/dispatch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>

namespace spotlight {
namespace {

constexpr std::uint64_t kRunId = 5;

// Plays the workers: each ServeOne sends the next scripted message and keeps the reply.
class ScriptedServer : public Server {
 public:
  bool ServeOne(const Handler& handler, std::chrono::milliseconds) override {
    if (!raw.empty()) {
      replies.push_back(Decode(handler(std::exchange(raw, {})), kRunId));
      return true;
    }
    if (script.empty()) return false;
    const Message message = std::move(script.front());
    script.pop_front();
    replies.push_back(Decode(handler(Encode(message, kRunId)), kRunId));
    return true;
  }
  void Tell(const std::string& name, const Bytes& message) override {
    told.emplace_back(name, Decode(message, kRunId));
  }
  std::vector<std::string> TakeLost() override { return script.empty() ? std::exchange(lost, {}) : decltype(lost){}; }

  // One message as bytes, out of the order of the script.
  Message Send(Dispatch& dispatch, const Bytes& bytes) {
    raw = bytes;
    dispatch.ServeUntil([&] { return raw.empty(); }, [] {});
    return replies.back();
  }

  Bytes raw;
  std::deque<Message> script;
  std::vector<Message> replies;
  std::vector<std::string> lost;  // after the script
  std::vector<std::pair<std::string, Message>> told;
};

class DispatchTest : public testing::Test {
 protected:
  DispatchTest() { Say({Hello{.rank = 1, .role = Role::kTrainer}, Hello{.rank = 2, .role = Role::kExplorer}}); }

  static Pull PullOf(std::uint32_t rank, Role role) {
    return {.rank = rank, .role = role, .capacity = 64, .busy_seconds = {}, .members = {rank}};
  }
  void Say(std::vector<Message> messages) {
    server_.script.assign(messages.begin(), messages.end());
    dispatch_.ServeUntil([&] { return server_.script.empty(); }, [] {});
  }
  void Lose(const std::string& name) {
    server_.lost = {name};
    dispatch_.ServeUntil([&] { return server_.lost.empty(); }, [] {});
  }
  Work WorkOf(std::uint32_t rank) {
    Say({PullOf(rank, rank == 1 ? Role::kTrainer : Role::kExplorer)});
    const auto* work = std::get_if<Work>(&server_.replies.back());
    return work == nullptr ? Work{} : *work;
  }

  Config config_;
  ScriptedServer server_;
  Dispatch dispatch_{config_, kRunId, server_, {.trainers = {{1, true}}, .weights = 3}};
};

TEST_F(DispatchTest, LateResultsOfACutExplorationAreRefused) {
  dispatch_.BeginIteration(0);
  dispatch_.Add({{.kind = RequestKind::kExplore, .seed = 1}, {.kind = RequestKind::kExplore, .seed = 2}});
  const Work work = WorkOf(2);
  ASSERT_EQ(work.requests.size(), 2U);
  Say({Push{2, {Sample{.request = work.requests[0]}}, {}}});
  dispatch_.Cancel(RequestKind::kExplore);
  ASSERT_EQ(server_.told.size(), 1U) << "who computes it must stop";
  EXPECT_EQ(server_.told[0].first, "2");
  EXPECT_EQ(std::get<Drop>(server_.told[0].second).last_id, work.requests[1].id);
  Say({Push{2, {Sample{.request = work.requests[1]}}, {}}});
  const std::vector<Sample> taken = dispatch_.Take(RequestKind::kExplore);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].request.seed, 1U);
}

TEST_F(DispatchTest, TrainersExploreOnlyWhatMustBeDoneAndWhereNobodyElseIs) {
  dispatch_.Add({{.kind = RequestKind::kExplore}});
  config_.explore.budget = ExploreConfig::Budget::kFixed;
  EXPECT_TRUE(WorkOf(1).requests.empty());
  Lose("2");
  config_.explore.budget = ExploreConfig::Budget::kDeadline;
  EXPECT_TRUE(WorkOf(1).requests.empty()) << "training must not wait for it";
  config_.explore.budget = ExploreConfig::Budget::kFixed;
  EXPECT_EQ(WorkOf(1).requests.size(), 1U) << "the last explorer is gone";
}

TEST_F(DispatchTest, SpotRanksMayBeKeptFromRollouts) {
  config_.ranks.spot_rollouts = false;
  dispatch_.Add({{.kind = RequestKind::kRollout}, {.kind = RequestKind::kExplore}});
  const Work explored = WorkOf(2);
  ASSERT_EQ(explored.requests.size(), 1U);
  EXPECT_EQ(explored.requests[0].kind, RequestKind::kExplore);
  const Work rolled_out = WorkOf(1);
  ASSERT_EQ(rolled_out.requests.size(), 1U);
  EXPECT_EQ(rolled_out.requests[0].kind, RequestKind::kRollout);
}

TEST_F(DispatchTest, SamplesToTrainOnComeInMessagesThatDoNotHoldUpHeartbeats) {
  constexpr std::size_t kBytes = std::size_t{6} << 20, kMost = std::size_t{16} << 20;
  std::vector<TrainSample> samples(5);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].sample.latents.assign(kBytes / sizeof(float), static_cast<float>(i));
    samples[i].advantage = static_cast<double>(i);
  }
  samples[4].sample.latents.resize(2 * kMost / sizeof(float));  // does not fit, and must come all the same
  dispatch_.StartTraining(7, samples);
  Say({PullOf(1, Role::kTrainer)});
  const Train train = std::get<Train>(server_.replies.back());
  EXPECT_EQ(train.iteration, 7U);
  ASSERT_EQ(train.samples, 5U);
  std::vector<std::size_t> pieces;
  std::vector<TrainSample> fetched;
  while (fetched.size() < train.samples) {
    Say({FetchSamples{fetched.size()}});
    const auto& piece = std::get<Samples>(server_.replies.back()).samples;
    pieces.push_back(piece.size());
    fetched.insert(fetched.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(pieces, (std::vector<std::size_t>{2, 2, 1}));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(fetched[i].sample.latents, samples[i].sample.latents);
    EXPECT_EQ(fetched[i].advantage, samples[i].advantage);
  }
}

TEST_F(DispatchTest, TimesAreThoseOfSpotRanks) {
  constexpr RequestKind kRollout = RequestKind::kRollout, kExplore = RequestKind::kExplore;
  dispatch_.Add({{.kind = kRollout, .seed = 1}});
  WorkOf(2);
  Say({Push{2, {Sample{.request = {.kind = kRollout}}}, {.degree = 1, .requests = 3, .real_passes = 5}},
       Push{1, {Sample{.request = {.kind = kRollout}}}, {.degree = 1, .requests = 7}},
       Push{2, {Sample{.request = {.kind = kExplore}}}, {.degree = 1, .requests = 4}}});
  const std::vector<BatchTimes> times = dispatch_.TakeTimes(kRollout);
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].requests, 3U);
  EXPECT_TRUE(dispatch_.TakeTimes(kRollout).empty());
  ASSERT_EQ(dispatch_.TakeTimes(kExplore).size(), 1U) << "what rollouts take is not what exploration takes";
  EXPECT_EQ(dispatch_.roster().Slots(), std::vector<int>{1});
}

TEST_F(DispatchTest, RequestsOfALostSpotRankGoToOthers) {
  dispatch_.Add({{.seed = 1}, {.seed = 2}});
  const Work lost = WorkOf(2);
  ASSERT_EQ(lost.requests.size(), 2U);
  EXPECT_TRUE(WorkOf(1).requests.empty());
  Lose("2");
  EXPECT_EQ(dispatch_.roster().explorers(), 0);
  EXPECT_EQ(dispatch_.roster().counts.lost, 1);
  const Work again = WorkOf(1);
  ASSERT_EQ(again.requests.size(), 2U);
  // A zombie's answer is refused, its next pull sends it away.
  Say({Push{2, {Sample{.request = lost.requests[0]}}, {}}, PullOf(2, Role::kExplorer)});
  EXPECT_TRUE(std::holds_alternative<Finish>(server_.replies.back()));
  EXPECT_FALSE(dispatch_.Done(RequestKind::kRollout));
  Say({Push{1, {Sample{.request = again.requests[0]}, Sample{.request = again.requests[1]}}, {}}});
  EXPECT_TRUE(dispatch_.Done(RequestKind::kRollout));
  EXPECT_EQ(dispatch_.Take(RequestKind::kRollout).size(), 2U);
}

TEST_F(DispatchTest, WhatAWorkerHadInWorkWhenItPullsAnewGoesBack) {
  dispatch_.Add({{.seed = 1}});
  EXPECT_EQ(WorkOf(2).requests.size(), 1U);
  EXPECT_EQ(WorkOf(2).requests.size(), 1U);
}

TEST_F(DispatchTest, AParkedRankIsCalledOnce) {
  const Pull parked{.rank = 3, .role = Role::kExplorer};
  Say({Hello{.rank = 3, .role = Role::kExplorer, .parked = true}, parked});
  EXPECT_TRUE(std::holds_alternative<Wait>(server_.replies.back()));
  EXPECT_EQ(dispatch_.roster().explorers(), 1);
  EXPECT_TRUE(dispatch_.roster().CallParked());
  EXPECT_FALSE(dispatch_.roster().CallParked());
  Say({parked});
  EXPECT_TRUE(std::holds_alternative<Activate>(server_.replies.back()));
  EXPECT_FALSE(dispatch_.roster().CallParked()) << "it is on its way";
  Say({PullOf(3, Role::kExplorer)});
  EXPECT_EQ(dispatch_.roster().explorers(), 2);
}

// With wrong prompts or an older model its samples would be wrong, and nobody could see it.
TEST_F(DispatchTest, WhoHasReadOtherFilesTakesNoPart) {
  const std::map<std::string, std::string> contents = {{"model/path", "12"}, {"prompts/train", "34"}};
  Dispatch dispatch(config_, kRunId, server_, {.trainers = {{1, true}}, .weights = 3, .contents = contents});
  const auto say = [&](const Hello& hello) { return server_.Send(dispatch, Encode(hello, kRunId)); };
  const auto refused = say({.rank = 2, .host = "node7", .contents = {{"model/path", "12"}, {"prompts/train", "56"}}});
  EXPECT_THAT(std::get<Failed>(refused).text, testing::HasSubstr("rank 2 on node7 has read other files"));
  EXPECT_THAT(std::get<Failed>(refused).text, testing::HasSubstr(": prompts/train;"));
  EXPECT_FALSE(dispatch.roster().Has(2));
  auto more = contents;
  more["reward/detector"] = "78";  // it would judge by other terms
  EXPECT_THAT(std::get<Failed>(say({.rank = 3, .contents = more})).text, testing::HasSubstr(": reward/detector;"));
  EXPECT_TRUE(std::holds_alternative<Ack>(say({.rank = 4, .contents = contents})));
  EXPECT_TRUE(dispatch.roster().Has(4));
  // A trainer is needed.
  server_.script.push_back(Hello{.rank = 1, .role = Role::kTrainer, .contents = more});
  EXPECT_THROW(dispatch.ServeUntil([] { return false; }, [] {}), RunFailed);
}

TEST_F(DispatchTest, AMessageOfAnotherRunHurtsNobody) {
  EXPECT_EQ(std::get<Failed>(server_.Send(dispatch_, Encode(Ack{}, kRunId + 1))).exit_code, kExitUsage);
}

TEST_F(DispatchTest, WeightsAreFoundAtTheCoordinatorAndAtRanksThatAskedBefore) {
  const std::vector<float> values = {1, 2, 3};
  dispatch_.Publish({4, false}, values);
  const auto holders = [&](std::uint32_t rank, const std::string& address) {
    Say({FindWeights{rank, 4, false, address}});
    return std::get<WeightPieces>(server_.replies.back()).holders;
  };
  EXPECT_THAT(holders(2, "two"), testing::IsEmpty());
  EXPECT_THAT(holders(2, "two"), testing::IsEmpty()) << "itself";
  EXPECT_THAT(holders(1, ""), testing::ElementsAre("two"));
  EXPECT_THAT(holders(7, "unknown rank"), testing::ElementsAre("two"));
  EXPECT_THAT(holders(1, ""), testing::ElementsAre("two"));
  Say({FetchWeights{4, false, 1, 9}});
  EXPECT_THAT(std::get<Weights>(server_.replies.back()).values, testing::ElementsAre(2, 3));
  Lose("2");
  EXPECT_THAT(holders(1, ""), testing::IsEmpty());
  // What a worker that was away for long asks for ends nothing.
  dispatch_.Publish({6, false}, values);
  Say({FindWeights{1, 4, false, ""}});
  EXPECT_TRUE(std::holds_alternative<NoWeights>(server_.replies.back()));
  Say({FetchWeights{4, false, 0, 9}});
  EXPECT_TRUE(std::holds_alternative<NoWeights>(server_.replies.back()));
}

TEST_F(DispatchTest, OnlyWorkOfEqualWeightsIsFoundInTheStore) {
  const TensorStore::Options options{
      .path = testing::TempDir() + "dispatch_store", .run = "a run", .sizes = {.latent = {1, 2}, .window = 2}};
  std::filesystem::remove_all(options.path);
  const auto left = [&](const std::vector<float>& weights, const std::vector<float>& average) {
    TensorStore store(options);
    Dispatch dispatch(config_, kRunId, server_, {.trainers = {{1, true}}, .store = &store, .weights = 3});
    dispatch.Publish({7, false}, weights);
    dispatch.Publish({7, true}, average);
    dispatch.BeginIteration(7);
    dispatch.Add({{.iteration = 7, .weight_version = 7}});
    dispatch.Add({{.kind = RequestKind::kEvaluate, .iteration = 7, .weight_version = 7}});
    std::vector<RequestKind> kinds;
    server_.script = {Hello{.rank = 2, .role = Role::kExplorer}};
    for (int pull = 0; pull < 2; ++pull) {
      server_.script.emplace_back(PullOf(2, Role::kExplorer));
      dispatch.ServeUntil([&] { return server_.script.empty(); }, [] {});
      const auto* work = std::get_if<Work>(&server_.replies.back());
      if (work == nullptr) continue;
      kinds.push_back(work->requests[0].kind);
      server_.script.emplace_back(Push{2, {Sample{.request = work->requests[0]}}, {}});
    }
    dispatch.ServeUntil([&] { return server_.script.empty(); }, [] {});
    EXPECT_TRUE(store.WaitWritten(10));
    return kinds;
  };
  using testing::ElementsAre;
  EXPECT_THAT(left({1, 2, 3}, {4, 5, 6}), ElementsAre(RequestKind::kEvaluate, RequestKind::kRollout));
  EXPECT_THAT(left({1, 2, 3}, {4, 5, 6}), ElementsAre()) << "a restart";
  EXPECT_THAT(left({1, 2, 4}, {4, 5, 6}), ElementsAre(RequestKind::kRollout)) << "it has come to other weights";
  EXPECT_THAT(left({1, 2, 4}, {4, 5, 7}), ElementsAre(RequestKind::kEvaluate));
  EXPECT_THAT(left({1, 2, 3}, {4, 5, 6}), ElementsAre()) << "what was there before is still there";
  std::filesystem::remove_all(options.path);
}

TEST_F(DispatchTest, TheEndOfATrainersConnectionIsALoss) {
  server_.lost = {"1"};
  try {
    dispatch_.ServeUntil([] { return false; }, [] {});
    FAIL() << "no loss";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what(), testing::HasSubstr("rank 1 (trainer) is lost: its connection has ended"));
    EXPECT_THAT(lost.what(), testing::HasSubstr("-r latest"));
  }
}

TEST_F(DispatchTest, ReportedFailureComesWithItsTextAndCode) {
  server_.script.assign({Failed{"rank 1: the disk is full", 74, 1}});
  server_.lost = {"1"};  // it leaves after its report
  try {
    dispatch_.ServeUntil([] { return false; }, [] {});
    FAIL() << "no failure";
  } catch (const RunFailed& failed) {
    EXPECT_EQ(failed.what(), std::string("rank 1: the disk is full"));
    EXPECT_EQ(failed.exit_code(), 74);
  }
}

TEST_F(DispatchTest, FinishWaitsForNobodyWhoIsGone) {
  server_.script.assign({PullOf(1, Role::kTrainer)});
  server_.lost = {"2"};
  dispatch_.Finish();
  EXPECT_TRUE(std::holds_alternative<Finish>(server_.replies.back()));
}

}  // namespace
}  // namespace spotlight
