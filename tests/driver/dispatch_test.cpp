#include "driver/dispatch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace spotlight {
namespace {

constexpr std::uint64_t kRunId = 5;

// Plays the workers: each ServeOne sends the next scripted message and keeps the reply.
class ScriptedServer : public Server {
 public:
  bool ServeOne(const Handler& handler, std::chrono::milliseconds) override {
    if (script.empty()) return false;
    const Message message = std::move(script.front());
    script.pop_front();
    replies.push_back(Decode(handler(Encode(message, kRunId)), kRunId));
    return true;
  }
  std::vector<std::string> TakeLost() override { return script.empty() ? std::exchange(lost, {}) : decltype(lost){}; }

  std::deque<Message> script;
  std::vector<Message> replies;
  std::vector<std::string> lost;  // after the script
};

class DispatchTest : public testing::Test {
 protected:
  Pull PullOf(std::uint32_t rank, Role role) { return {rank, role, 64, {}}; }
  void Serve() {
    dispatch_.ServeUntil([&] { return server_.script.empty(); }, [] {});
  }

  Config config_;
  ScriptedServer server_;
  Dispatch dispatch_{config_,
                     {{1, Role::kTrainer}, {2, Role::kExplorer}},
                     kRunId,
                     server_,
                     [](const FetchPrompts& fetch) {
                       return Prompts{fetch.list, {}};
                     },
                     3};
};

TEST_F(DispatchTest, LateResultsOfACutExplorationAreRefused) {
  dispatch_.BeginIteration();
  dispatch_.Add({{.kind = RequestKind::kExplore, .seed = 1}, {.kind = RequestKind::kExplore, .seed = 2}});
  server_.script = {PullOf(2, Role::kExplorer)};
  Serve();
  const auto work = std::get<Work>(server_.replies.back());
  ASSERT_EQ(work.requests.size(), 2U);
  server_.script = {Push{2, {Sample{.request = work.requests[0]}}}};
  Serve();
  dispatch_.Cancel(RequestKind::kExplore);
  server_.script = {Push{2, {Sample{.request = work.requests[1]}}}};
  Serve();
  const std::vector<Sample> taken = dispatch_.Take(RequestKind::kExplore);
  ASSERT_EQ(taken.size(), 1U);
  EXPECT_EQ(taken[0].request.seed, 1U);
}

TEST_F(DispatchTest, TrainersDoNotExploreWhereExplorersAre) {
  dispatch_.Add({{.kind = RequestKind::kExplore}});
  server_.script = {PullOf(1, Role::kTrainer)};
  Serve();
  EXPECT_TRUE(std::holds_alternative<Wait>(server_.replies.back()));
}

TEST_F(DispatchTest, EndedConnectionIsALoss) {
  server_.lost = {"2"};
  try {
    dispatch_.ServeUntil([] { return false; }, [] {});
    FAIL() << "no loss";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what(), testing::HasSubstr("rank 2 (explorer) is lost: its connection has ended"));
    EXPECT_THAT(lost.what(), testing::HasSubstr("-r latest"));
  }
}

TEST_F(DispatchTest, ReportedFailureComesWithItsTextAndCode) {
  server_.script = {Failed{"rank 1: the disk is full", 74, 1}};
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
  server_.script = {PullOf(1, Role::kTrainer)};
  server_.lost = {"2"};
  dispatch_.Finish();
  EXPECT_TRUE(std::holds_alternative<Finish>(server_.replies.back()));
}

}  // namespace
}  // namespace spotlight
