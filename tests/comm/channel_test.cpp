#include "comm/channel.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

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
  const auto client = MakeClient(address, seconds(20));
  const Clock::time_point start = Clock::now();
  try {
    client->Call(ToBytes("anybody?"));
    FAIL() << "a reply from nobody";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what(), testing::HasSubstr("nobody listens at tcp://127.0.0.1:"));
  }
  EXPECT_LT(Clock::now() - start, seconds(5)) << "refused, not silent";
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

// A server in a thread of its own, which counts what it has served.
class Serving {
 public:
  explicit Serving(Handler handler = Echo) : handler_(std::move(handler)) {
    thread_ = std::thread([this] {
      while (!ends_) {
        if (server_->ServeOne(handler_, milliseconds(20))) ++served;
        for (const std::string& name : server_->TakeLost()) {
          const std::lock_guard lock(mutex_);
          lost_.push_back(name);
        }
      }
    });
  }
  ~Serving() {
    ends_ = true;
    thread_.join();
  }
  std::string address() const { return server_->address(); }
  std::vector<std::string> lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }
  // Within a few seconds.
  bool HasLost(const std::string& name) {
    for (const Clock::time_point end = Clock::now() + seconds(5); Clock::now() < end;) {
      const std::vector<std::string> names = lost();
      if (std::find(names.begin(), names.end(), name) != names.end()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  std::atomic<std::uint64_t> served = 0;

 private:
  Handler handler_;
  std::unique_ptr<NetworkServer> server_ = MakeServer("127.0.0.1");
  std::atomic<bool> ends_ = false;
  std::mutex mutex_;
  std::vector<std::string> lost_;
  std::thread thread_;
};

// The slowest of some calls of a client that behaves.
milliseconds SlowestCall(Client& client, int calls = 50) {
  Clock::duration slowest{};
  for (int i = 0; i < calls; ++i) {
    const Clock::time_point start = Clock::now();
    EXPECT_EQ(ToText(client.Call(ToBytes("hello"))), "re: hello");
    slowest = std::max(slowest, Clock::now() - start);
  }
  return std::chrono::duration_cast<milliseconds>(slowest);
}

// A TCP connection to the server that speaks no ZeroMQ unless told to.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    connected_ = connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0;
  }
  ~RawConnection() { close(socket_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;
  bool Send(const std::string& bytes) const {
    return connected_ && send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Whether the server says anything within a few seconds.
  bool Hears() const {
    timeval limit{5, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    char byte = 0;
    return recv(socket_, &byte, 1, 0) == 1;
  }
  // Whether the server ends the connection within a few seconds.
  bool Ends() const {
    timeval limit{5, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    char buffer[4096];
    ssize_t got = 1;
    while (got > 0) got = recv(socket_, buffer, sizeof(buffer), 0);
    return got == 0 || errno == ECONNRESET;
  }

 private:
  int socket_;
  bool connected_ = false;
};

// A client that knows the key and sends what it likes; it keeps one message that it has not read.
struct RawDealer {
  explicit RawDealer(const std::string& address) {
    char open[41], secret[41];
    EXPECT_EQ(zmq_curve_keypair(open, secret), 0);
    const std::size_t space = address.find(' ');
    socket.set(zmq::sockopt::curve_serverkey, address.substr(space + 1));
    socket.set(zmq::sockopt::curve_publickey, open);
    socket.set(zmq::sockopt::curve_secretkey, secret);
    socket.set(zmq::sockopt::rcvhwm, 1);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, 5000);
    socket.connect(address.substr(0, space));
  }
  void Send(const std::vector<std::string>& parts) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      socket.send(zmq::buffer(parts[i]), i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
  }

  zmq::context_t context;
  zmq::socket_t socket{context, zmq::socket_type::dealer};
};

// ZMTP 3.1: signature, version, mechanism CURVE, not the server.
std::string Greeting() {
  std::string greeting(
      "\xff\0\0\0\0\0\0\0\0\x7f\x03\x01"
      "CURVE",
      17);
  greeting.resize(64, '\0');
  return greeting;
}

TEST(ZmqChannel, PostsGetNoReplyAndComeBeforeLaterCalls) {
  std::vector<std::string> heard;
  Serving serving([&](const Bytes& request) {
    heard.push_back(ToText(request));
    return Bytes(100'000);
  });
  const auto client = MakeClient(serving.address(), seconds(20));
  // Far more replies than the buffers hold.
  for (int i = 0; i < 2000; ++i) {
    while (!client->Post(ToBytes("post"))) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(client->Call(ToBytes("call")).size(), 100'000U);
  ASSERT_EQ(heard.size(), 2001U);
  EXPECT_EQ(heard.back(), "call");
}

TEST(ZmqChannel, TheNewestWordOfTheServerIsHeardBetweenCallsAndBeforeThem) {
  const auto server = MakeServer("127.0.0.1");
  std::atomic<int> said = 0;
  std::vector<std::string> heard;
  std::thread worker([&] {
    const auto client = MakeClient(server->address(), seconds(20), "7");
    client->Call(ToBytes("hello"));
    EXPECT_EQ(client->Heard(), std::nullopt);
    said = 1;
    while (said < 2) std::this_thread::yield();
    // Words that come while a call waits for its reply are no reply, and are kept.
    EXPECT_EQ(ToText(client->Call(ToBytes("more"))), "re: more");
    const std::optional<Bytes> word = client->Heard();
    heard.push_back(word ? ToText(*word) : "nothing");
    EXPECT_EQ(client->Heard(), std::nullopt) << "once";
    said = 3;
    std::optional<Bytes> later;
    for (const auto end = Clock::now() + seconds(20); !later && Clock::now() < end;) later = client->Heard();
    heard.push_back(later ? ToText(*later) : "nothing");
  });
  server->Tell("7", ToBytes("too early: nobody of that name"));
  while (said < 1) server->ServeOne(Echo, milliseconds(10));
  server->Tell("8", ToBytes("to nobody"));
  server->Tell("7", ToBytes("one"));
  server->Tell("7", ToBytes("two"));
  said = 2;
  while (said < 3) server->ServeOne(Echo, milliseconds(10));
  server->Tell("7", ToBytes("three"));
  worker.join();
  EXPECT_THAT(heard, testing::ElementsAre("two", "three"));
}

TEST(ZmqChannel, AClientThatDoesNotReadHoldsUpNobody) {
  const std::string large(1'000'000, 'w');
  Serving serving([&](const Bytes& request) { return ToText(request) == "much" ? ToBytes(large) : Echo(request); });
  const auto good = MakeClient(serving.address(), seconds(20));
  SlowestCall(*good, 1);
  RawDealer deaf(serving.address());
  // More than all buffers hold.
  const std::uint64_t before = serving.served;
  for (int i = 0; i < 300; ++i) deaf.Send({"number 1", "much"});
  for (const Clock::time_point end = Clock::now() + seconds(10); serving.served < before + 300 && Clock::now() < end;) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(serving.served, before + 300);
  EXPECT_LT(SlowestCall(*good), seconds(1));
}

TEST(ZmqChannel, AFloodHoldsUpNobody) {
  Serving serving;
  const auto good = MakeClient(serving.address(), seconds(20));
  SlowestCall(*good, 1);
  std::atomic<bool> ends = false;
  std::atomic<std::uint64_t> posted = 0;
  std::thread flood([&] {
    const auto client = MakeClient(serving.address(), seconds(20));
    const Bytes some(1000);
    while (!ends) posted += client->Post(some) ? 1 : 0;
  });
  while (posted < 1000) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_LT(SlowestCall(*good), seconds(1));
  ends = true;
  flood.join();
}

TEST(ZmqChannel, ALossIsToldUnderAFlood) {
  Serving serving([](const Bytes& request) {
    std::this_thread::sleep_for(milliseconds(1));  // slower than the flood: requests always wait
    return Echo(request);
  });
  std::atomic<bool> ends = false;
  std::atomic<std::uint64_t> posted = 0;
  std::thread flood([&] {
    const auto client = MakeClient(serving.address(), seconds(20));
    const Bytes some(10);
    while (!ends) posted += client->Post(some) ? 1 : 0;
  });
  while (posted < 1000) std::this_thread::sleep_for(milliseconds(1));
  auto client = MakeClient(serving.address(), seconds(20), "17");
  EXPECT_EQ(ToText(client->Call(ToBytes("hello"))), "re: hello");
  client.reset();
  EXPECT_TRUE(serving.HasLost("17"));
  ends = true;
  flood.join();
}

// Serves until nothing comes any more; who was lost meanwhile.
std::vector<std::string> LostSoon(NetworkServer& server) {
  std::vector<std::string> lost;
  for (int quiet = 0; quiet < 10;) {
    quiet = server.ServeOne(Echo, milliseconds(20)) ? 0 : quiet + 1;
    for (const std::string& name : server.TakeLost()) lost.push_back(name);
  }
  return lost;
}

// The system gives a new connection the descriptor of one that has just ended.
TEST(ZmqChannel, ALossIsToldAlthoughAnotherConnectionHasItsDescriptor) {
  const auto server = MakeServer("127.0.0.1");
  auto first = MakeClient(server->address(), seconds(5), "first");
  ASSERT_TRUE(first->Post(ToBytes("x")));
  ASSERT_TRUE(server->ServeOne(Echo, seconds(5)));
  first.reset();
  std::this_thread::sleep_for(milliseconds(100));
  auto second = MakeClient(server->address(), seconds(5), "second");
  ASSERT_TRUE(second->Post(ToBytes("y")));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(LostSoon(*server), std::vector<std::string>{"first"});
  second.reset();
  EXPECT_EQ(LostSoon(*server), std::vector<std::string>{"second"});
}

TEST(ZmqChannel, ALossIsToldOfWhoWasGoneBeforeItsFirstRequestWasServed) {
  const auto server = MakeServer("127.0.0.1");
  for (const std::string name : {"one", "two"}) {  // the second one has the descriptor of the first
    auto client = MakeClient(server->address(), seconds(5), name);
    ASSERT_TRUE(client->Post(ToBytes("x")));
    std::this_thread::sleep_for(milliseconds(100));
    client.reset();
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(LostSoon(*server), (std::vector<std::string>{"one", "two"}));
}

TEST(ZmqChannel, GarbageAndHalfOpenConnectionsHoldUpNobody) {
  Serving serving;
  const std::string address = serving.address().substr(0, serving.address().find(' '));
  const auto good = MakeClient(serving.address(), seconds(20));
  SlowestCall(*good, 1);
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<RawConnection>(address));
  const RawConnection garbage(address), dead_midway(address);
  EXPECT_TRUE(garbage.Send(std::string(10'000, '\x55')));
  {
    const RawConnection midway(address);
    EXPECT_TRUE(midway.Send(Greeting().substr(0, 20)));
  }
  EXPECT_LT(SlowestCall(*good), seconds(1));
  EXPECT_TRUE(serving.lost().empty()) << "nobody who had called";
}

TEST(ZmqChannel, WhatIsNoRequestIsDropped) {
  std::atomic<int> calls = 0;
  Serving serving([&](const Bytes& request) {
    ++calls;
    return Echo(request);
  });
  RawDealer client(serving.address());
  client.Send({"alone"});
  client.Send({"number 1", "two", "bodies"});
  client.Send({"no number", "body"});
  client.Send({"number 2", "right"});
  zmq::message_t number, reply;
  ASSERT_TRUE(client.socket.recv(number) && client.socket.recv(reply));
  EXPECT_EQ(number.to_string() + ", " + reply.to_string(), "number 2, re: right");
  EXPECT_EQ(calls, 1);
}

TEST(ZmqChannel, NobodyCanAskForAllMemory) {
  Serving serving;
  const RawConnection greedy(serving.address().substr(0, serving.address().find(' ')));
  // A command of 2 GiB instead of the handshake.
  EXPECT_TRUE(greedy.Send(Greeting() + std::string("\x06\0\0\0\0\x80\0\0\0", 9)));
  EXPECT_TRUE(greedy.Ends());
  const auto client = MakeClient(serving.address(), seconds(20));
  SlowestCall(*client, 1);
}

TEST(ZmqChannel, WithoutEncryptionNothingGetsThrough) {
  Serving serving;
  zmq::context_t context;
  zmq::socket_t plain(context, zmq::socket_type::dealer);
  plain.set(zmq::sockopt::linger, 0);
  plain.connect(serving.address().substr(0, serving.address().find(' ')));
  for (const std::string part : {"number 1", "let me in"}) {
    plain.send(zmq::buffer(part), part == "number 1" ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  std::this_thread::sleep_for(milliseconds(200));
  const auto client = MakeClient(serving.address(), seconds(20));
  SlowestCall(*client, 1);
  EXPECT_EQ(serving.served, 1U);
}

// ZeroMQ's own thread would wait with all connections until the server looks at the events of these.
TEST(ZmqChannel, ConnectionsOfAPortScannerHoldUpNobodyWhileTheServerIsBusyElsewhere) {
  const auto server = MakeServer("127.0.0.1");
  const std::string address = server->address().substr(0, server->address().find(' '));
  for (int i = 0; i < 1100; ++i) RawConnection{address};
  const RawConnection late(address);
  EXPECT_TRUE(late.Hears()) << "the server's greeting";
}

TEST(ZmqChannel, AMachineNeedNotKnowTheNameThatOthersKnowItBy) {
  const auto server = MakeServer("no..name");
  EXPECT_TRUE(server->address().starts_with("tcp://no..name:"));
  std::thread worker([&] {
    const auto client = MakeClient(server->AddressAt("127.0.0.1"), seconds(20));
    EXPECT_EQ(ToText(client->Call(ToBytes("hello"))), "re: hello");
  });
  EXPECT_TRUE(server->ServeOne(Echo, seconds(10)));
  worker.join();
  try {
    MakeClient(server->address(), seconds(20))->Call(ToBytes("hello"));
    FAIL() << "a reply from nowhere";
  } catch (const PeerLost& lost) {
    EXPECT_THAT(lost.what(), testing::HasSubstr("its name is not known on this machine"));
  }
}

TEST(ZmqChannel, TheGivenPortIsTakenOrRefused) {
  std::string address = MakeServer("127.0.0.1")->address();
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  const auto server = MakeServer("127.0.0.1", port);
  EXPECT_TRUE(server->address().starts_with("tcp://127.0.0.1:" + std::to_string(port) + " "));
  try {
    MakeServer("127.0.0.1", port);
    FAIL() << "one port twice";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("ranks/port = " + std::to_string(port) + ": nobody"));
  }
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
