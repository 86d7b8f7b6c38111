#include "comm/channel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

Bytes ToBytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

std::string ToText(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Bytes Echo(const Bytes& request) { return ToBytes("re: " + ToText(request)); }

TEST(ZmqChannel, EveryClientGetsItsOwnReplies) {
  const auto server = MakeServer("127.0.0.1");
  constexpr int kClients = 3;
  constexpr int kCalls = 50;
  std::atomic<int> right = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      const auto client = MakeClient(server->address(), seconds(20));
      for (int i = 0; i < kCalls; ++i) {
        const std::string text = std::to_string(c) + "." + std::to_string(i);
        if (ToText(client->Call(ToBytes(text))) == "re: " + text) ++right;
      }
    });
  }
  int served = 0;
  const Clock::time_point deadline = Clock::now() + seconds(20);
  while (served < kClients * kCalls && Clock::now() < deadline) {
    if (server->ServeOne(Echo, milliseconds(100))) ++served;
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, kClients * kCalls);
}

TEST(ZmqChannel, LargeAndEmptyMessages) {
  const auto server = MakeServer("127.0.0.1");
  const std::string large(20'000'000, 'w');
  std::string large_reply;
  std::string empty_reply;
  std::thread worker([&] {
    const auto client = MakeClient(server->address(), seconds(20));
    large_reply = ToText(client->Call(ToBytes(large)));
    empty_reply = ToText(client->Call({}));
  });
  const Clock::time_point deadline = Clock::now() + seconds(20);
  for (int served = 0; served < 2 && Clock::now() < deadline;) {
    if (server->ServeOne(Echo, milliseconds(100))) ++served;
  }
  worker.join();
  EXPECT_TRUE(large_reply == "re: " + large);
  EXPECT_EQ(empty_reply, "re: ");
}

TEST(ZmqChannel, ServerWaitsAsLongAsAsked) {
  const auto server = MakeServer("127.0.0.1");
  const Clock::time_point start = Clock::now();
  EXPECT_FALSE(server->ServeOne(Echo, milliseconds(60)));
  EXPECT_GE(Clock::now() - start, milliseconds(50));
}

TEST(ZmqChannel, SilentServerIsLostAfterTheDetectionTime) {
  const auto server = MakeServer("127.0.0.1");  // but nobody serves
  const auto client = MakeClient(server->address(), milliseconds(200));
  const Clock::time_point start = Clock::now();
  try {
    client->Call(ToBytes("anybody?"));
    FAIL() << "a reply from nobody";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what(), testing::HasSubstr("was silent for 0.2 s"));
  }
  EXPECT_GE(Clock::now() - start, milliseconds(200));
  EXPECT_LT(Clock::now() - start, seconds(5));
}

TEST(ZmqChannel, DeadServerIsLost) {
  std::string address = MakeServer("127.0.0.1")->address();
  const auto client = MakeClient(address, milliseconds(200));
  EXPECT_THROW(client->Call(ToBytes("anybody?")), PeerLost);
}

TEST(ZmqChannel, LateReplyIsNotTakenForTheNext) {
  const auto server = MakeServer("127.0.0.1");
  const auto client = MakeClient(server->address(), milliseconds(500));
  EXPECT_THROW(client->Call(ToBytes("first")), PeerLost);
  std::thread serve([&] {
    const Clock::time_point deadline = Clock::now() + seconds(5);
    for (int served = 0; served < 2 && Clock::now() < deadline;) {
      if (server->ServeOne(Echo, milliseconds(50))) ++served;
    }
  });
  EXPECT_EQ(ToText(client->Call(ToBytes("second"))), "re: second");
  serve.join();
}

TEST(ZmqChannel, WithoutTheServersKeyNothingGetsThrough) {
  const auto server = MakeServer("127.0.0.1");
  const std::string address = server->address();
  const std::string other_key = MakeServer("127.0.0.1")->address().substr(address.find(' ') + 1);
  const auto client = MakeClient(address.substr(0, address.find(' ') + 1) + other_key, milliseconds(300));
  std::atomic<bool> served = false;
  std::thread serve([&] { served = server->ServeOne(Echo, milliseconds(300)); });
  EXPECT_THROW(client->Call(ToBytes("let me in")), PeerLost);
  serve.join();
  EXPECT_FALSE(served);
}

TEST(ZmqChannel, HandlersErrorReachesTheCoordinator) {
  const auto server = MakeServer("127.0.0.1");
  std::thread worker([&] {
    const auto client = MakeClient(server->address(), milliseconds(500));
    EXPECT_THROW(client->Call(ToBytes("x")), PeerLost);
  });
  const Handler fails = [](const Bytes&) -> Bytes { throw FileError("disk full"); };
  EXPECT_THROW(server->ServeOne(fails, seconds(10)), FileError);
  worker.join();
}

TEST(ZmqChannel, MalformedAddressIsABug) {
  EXPECT_THROW(MakeClient("tcp://127.0.0.1:1", seconds(1)), InternalError);
  EXPECT_THROW(MakeClient("tcp://127.0.0.1:1 short", seconds(1)), InternalError);
}

TEST(LocalChannel, ServeOneRunsOneTurn) {
  int turns = 0;
  const auto server = MakeLocalServer([&](Client& client) {
    ++turns;
    if (turns == 2) return;  // nothing to ask
    EXPECT_EQ(ToText(client.Call(ToBytes("a"))), "re: a");
    EXPECT_EQ(ToText(client.Call(ToBytes("b"))), "re: b");
  });
  EXPECT_TRUE(server->ServeOne(Echo, milliseconds(0)));
  EXPECT_EQ(turns, 1);
  EXPECT_FALSE(server->ServeOne(Echo, milliseconds(0)));
  EXPECT_EQ(turns, 2);
}

}  // namespace
}  // namespace spotlight
